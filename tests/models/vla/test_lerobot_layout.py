"""Published folders: both layouts read alike, and every damage is told before anything is made of it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from vla_files import ACTION, CAMERAS, MEAN_STD, change_json, policy_config, tiny_stats, write_policy

from mstar_plan.errors import WeightsError
from mstar_plan.models.vla import lerobot_layout, lerobot_layout_files
from mstar_plan.models.vla.lerobot_layout import read_policy
from mstar_plan.models.vla.normalise import STATISTICS

STATE = "observation.state"
FEW = {"a.weight": torch.ones(2, 2), "b": torch.zeros(3)}


@pytest.mark.parametrize("layout", ["processors", "buffers"])
def test_a_whole_folder(tmp_path: Path, layout: str) -> None:
    files = read_policy(write_policy(tmp_path, layout=layout, tensors=FEW))
    assert files.kind == "smolvla"
    assert files.folder == tmp_path
    assert files.cameras == CAMERAS
    assert files.features[CAMERAS[0]].shape == (3, 48, 64)
    assert files.features["action"].kind == "ACTION"
    assert sorted(files.tensors) == sorted(FEW)  # neither "model." nor normalisers
    assert torch.equal(files.tensors["a.weight"], FEW["a.weight"])
    assert files.config["num_steps"] == 4
    assert files.unmeasured == ()
    assert files.tokenizer.file == tmp_path / "tokenizer.json"
    stats = tiny_stats()
    for name in (STATE, "action"):
        assert files.normalisers[name].rule == "mean_std"
        assert torch.equal(files.normalisers[name].stats["mean"], stats[name]["mean"])
        assert torch.equal(files.normalisers[name].stats["std"], stats[name]["std"])
    assert files.normalisers[CAMERAS[0]].rule == "identity"


@pytest.mark.parametrize("layout", ["processors", "buffers"])
@pytest.mark.parametrize("rule", sorted(STATISTICS))
def test_every_rule(tmp_path: Path, layout: str, rule: str) -> None:
    rules = MEAN_STD | {"STATE": rule.upper(), "ACTION": "IDENTITY"}
    files = read_policy(write_policy(tmp_path, layout=layout, rules=rules, tensors=FEW))
    assert files.normalisers[STATE].rule == rule
    assert files.normalisers["action"].rule == "identity"
    low, high = (tiny_stats()[STATE][name] for name in STATISTICS[rule])
    middle = low if rule == "mean_std" else (low + high) / 2
    assert torch.allclose(files.normalisers[STATE].normalise(middle), torch.zeros(5), atol=1e-6)


def test_what_processors_say_more(tmp_path: Path) -> None:
    files = read_policy(write_policy(tmp_path, tensors=FEW))
    assert files.rename == {"cam": CAMERAS[0]}
    assert (files.tokenizer.name, files.tokenizer.most, files.tokenizer.fill) == ("tests/tiny", 24, False)
    assert not files.tokenizer.fill_left


@pytest.mark.parametrize(("kind", "most", "fill"), [("pi0", 48, True), ("pi05", 200, True), ("smolvla", 48, True)])
def test_folders_without_a_word_on_prompts(tmp_path: Path, kind: str, most: int, fill: bool) -> None:
    write_policy(tmp_path, kind=kind, layout="buffers", tensors=FEW)
    (tmp_path / "tokenizer.json").unlink()
    files = read_policy(tmp_path)
    assert (files.kind, files.tokenizer.most, files.tokenizer.fill) == (kind, most, fill)
    assert files.tokenizer.file is None


def test_the_action_is_brought_back_by_the_file_behind_the_model(tmp_path: Path) -> None:
    write_policy(tmp_path, tensors=FEW)
    other = tiny_stats(1)
    flat = {f"{f}.{n}": t for f, each in other.items() for n, t in each.items()}
    save_file(flat, tmp_path / "policy_postprocessor_step_1_unnormalizer_processor.safetensors")
    files = read_policy(tmp_path)
    assert torch.equal(files.normalisers["action"].stats["mean"], other["action"]["mean"])
    assert torch.equal(files.normalisers[STATE].stats["mean"], tiny_stats()[STATE]["mean"])


@pytest.mark.parametrize("layout", ["processors", "buffers"])
def test_base_models_have_no_statistics(tmp_path: Path, layout: str) -> None:
    files = read_policy(write_policy(tmp_path, layout=layout, stats={}, tensors=FEW))
    assert set(files.unmeasured) == {STATE, "action"}
    assert files.normalisers["action"].rule == "identity"


def test_buffers_that_were_never_filled_are_not_there(tmp_path: Path) -> None:
    empty = {
        name: {"mean": torch.full((n,), torch.inf), "std": torch.full((n,), torch.inf)} for name, n in ((STATE, 5),)
    }
    files = read_policy(write_policy(tmp_path, layout="buffers", stats=empty, tensors=FEW))
    assert set(files.unmeasured) == {STATE, "action"}


def test_names_of_compiled_models_and_of_one_robot(tmp_path: Path) -> None:
    write_policy(tmp_path, layout="buffers", tensors=FEW)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model._orig_mod.c"] = torch.ones(1)
    for name in [each for each in weights if "buffer_" in each]:
        weights[name.replace(".buffer_", ".so100-blue_buffer_")] = weights.pop(name)
    save_file(weights, tmp_path / "model.safetensors")
    files = read_policy(tmp_path)
    assert "c" in files.tensors
    assert files.normalisers[STATE].rule == "mean_std"
    weights["model.c"] = torch.ones(1)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"holds model\.c twice"):
        read_policy(tmp_path)


def test_weights_without_the_wrapper_keep_their_names(tmp_path: Path) -> None:
    write_policy(tmp_path, tensors=FEW)
    save_file({"model.a": torch.ones(1), "head": torch.ones(1)}, tmp_path / "model.safetensors")
    assert sorted(read_policy(tmp_path).tensors) == ["head", "model.a"]


# --- damage -----------------------------------------------------------------------------------------------------------

BEFORE, AFTER = "policy_preprocessor.json", "policy_postprocessor.json"
STATS = "policy_preprocessor_step_1_normalizer_processor.safetensors"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", BEFORE, AFTER, STATS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write_policy(tmp_path, tensors=FEW) / name).unlink()
    with pytest.raises(WeightsError, match=f"lacks {name}"):
        read_policy(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="there is no folder"):
        read_policy(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["model.safetensors", STATS])
@pytest.mark.parametrize("keep", [0, 4, 40, -3])
def test_files_that_are_cut_short(tmp_path: Path, name: str, keep: int) -> None:
    path = write_policy(tmp_path, tensors=FEW) / name
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WeightsError, match="damaged"):
        read_policy(tmp_path)


class Bomb:
    """Fails the test if somebody unpickles it."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize("name", ["model.safetensors", STATS])
def test_pickles_are_never_opened(tmp_path: Path, name: str) -> None:
    (write_policy(tmp_path, tensors=FEW) / name).write_bytes(pickle.dumps({"a": Bomb()}))
    with pytest.raises(WeightsError, match="no pickle"):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be used"),
        ("{", "cannot be used"),
        ("[]", "a JSON object is needed"),
        ('{"type": "smolvla", "type": "pi0"}', "'type' is there twice"),
        ('{"type": NaN}', "NaN is no JSON number"),
        ("[" * 200_000, "cannot be used"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", BEFORE])
def test_damaged_json(tmp_path: Path, name: str, text: str, said: str) -> None:
    (write_policy(tmp_path, tensors=FEW) / name).write_text(text)
    with pytest.raises(WeightsError, match=said):
        read_policy(tmp_path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (write_policy(tmp_path, tensors=FEW) / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(WeightsError, match=r"config\.json cannot be used"):
        read_policy(tmp_path)


def test_sizes_are_bounded_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_policy(tmp_path, tensors=FEW)
    with monkeypatch.context() as patch:
        patch.setattr(lerobot_layout, "MAX_BYTES", 100)
        with pytest.raises(WeightsError, match=r"model\.safetensors has \d+ bytes; at most 100"):
            read_policy(folder)
    with monkeypatch.context() as patch:
        patch.setattr(lerobot_layout_files, "MAX_TENSORS", 1)
        with pytest.raises(WeightsError, match="holds 2 tensors; at most 1"):
            read_policy(folder)
    with (folder / "config.json").open("ab") as file:
        file.truncate(lerobot_layout_files.MAX_JSON_BYTES + 1)
    with pytest.raises(WeightsError, match=r"config\.json has \d+ bytes"):
        read_policy(folder)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(tmp_path: Path, bad: float) -> None:
    write_policy(tmp_path, tensors=FEW | {"c": torch.tensor([1.0, bad])})
    with pytest.raises(WeightsError, match=r"tensor model\.c holds NaN or infinity"):
        read_policy(tmp_path)


def test_normalisers_in_both_places_are_too_many(tmp_path: Path) -> None:
    write_policy(tmp_path, tensors=FEW)
    weights = load_file(tmp_path / "model.safetensors") | {"normalize_inputs.buffer_action.mean": torch.ones(ACTION)}
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="keep one of the two"):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output_features": {}}, "lack 'action'"),
        ({"output_features": {"action": {"type": "STATE", "shape": [4]}}}, "of type ACTION"),
        ({"output_features": {"action": {"type": "ACTION", "shape": [3]}}}, "statistics of action are for 4"),
        ({"tokenizer_max_lenght": 4}, "did you mean 'tokenizer_max_length'"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path: Path, changes: dict, said: str) -> None:
    change_json(write_policy(tmp_path, tensors=FEW) / "config.json", **changes)
    with pytest.raises(WeightsError, match=said):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"max_length": 0}, "at most 0"), ({"padding": "some"}, "'some'"), ({"padding_side": "top"}, "'top'")],
)
def test_prompts_that_cannot_be_made(tmp_path: Path, changes: dict, said: str) -> None:
    path = write_policy(tmp_path, tensors=FEW) / BEFORE
    content = json.loads(path.read_text())
    content["steps"][-1]["config"] |= changes
    path.write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=said):
        read_policy(tmp_path)


def test_kinds_of_config_are_those_that_are_known(tmp_path: Path) -> None:
    for kind in ("pi0", "pi05", "smolvla"):
        assert read_policy(write_policy(tmp_path / kind, kind=kind, tensors=FEW)).config == policy_config(kind)
