"""The registry: names, cards, and one test of the protocol for every model."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import InvalidInputError, NotFoundError, UnavailableError, WeightsError
from mstar_plan.models import registry
from mstar_plan.models.registry import ARCHITECTURES, MODELS, PRETRAINED, list_models, load_model, load_model_file
from mstar_plan.models.toy import render
from mstar_plan.models.weights import WeightsInfo, save_weights
from mstar_plan.models.world_model import WorldModel

INSTALLED = [card.name for card in list_models() if card.inputs is not None]


def frames_for(spec, count):
    """Any frames that the model takes; the toy world must see its point."""
    if spec.name == "toy":
        return torch.stack([torch.from_numpy(render([0.1 * i, -0.2])) for i in range(count)])
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *spec.image_size, 3), dtype=torch.uint8, generator=generator)


def test_the_shipped_models_are_there():
    tasks = {"reach", "wall", "push"}
    assert {"toy", *tasks, *(f"vjepa2_{task}" for task in tasks)} == set(INSTALLED)
    assert set(MODELS) == {*INSTALLED, "vjepa2_ac"}


@pytest.mark.parametrize("name", INSTALLED)
@torch.inference_mode()
def test_every_model_keeps_the_protocol(name):
    model = load_model(name)
    assert isinstance(model, WorldModel)
    spec = model.spec
    b, k, (n, d), a = 3, 4, spec.latent_shape, spec.action.size
    assert spec.name == name
    latent = model.encode(frames_for(spec, b))
    assert latent.shape == (b, n, d)
    assert latent.dtype == torch.float32
    context = latent[:, None].expand(-1, spec.context_frames, -1, -1)
    actions = torch.zeros(b, spec.context_frames - 1, a) if spec.context_frames > 1 else None
    state = torch.zeros(b, spec.state_size) if spec.state_size else None
    z, state, cache = model.begin(context, actions, state, k, 3)
    assert z.shape == (b, k, n, d)
    action = torch.zeros(b, k, a)
    action[:, 1] = torch.from_numpy(spec.action.high)
    moved, state, cache = model.predict(z, state, action, cache)
    assert moved.shape == (b, k, n, d)
    assert moved.isfinite().all()
    assert not torch.allclose(moved[:, 0], moved[:, 1])  # the action matters
    embedded = model.embed(moved)
    assert embedded.shape[:2] == (b, k)
    assert embedded.ndim == 3
    torch.testing.assert_close(model.embed(moved[1, 2]), embedded[1, 2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", INSTALLED)
@torch.inference_mode()
def test_batch_mates_do_not_matter(name):
    model = load_model(name)
    frames = frames_for(model.spec, 3)
    together, alone = model.encode(frames)[1:2], model.encode(frames[1:2])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("card", list_models(), ids=lambda card: card.name)
def test_cards_tell_inputs_size_and_evaluation(card):
    assert card.description
    if card.name in registry.TO_CONVERT:
        assert card.inputs is None
        return
    assert card.inputs is not None
    if MODELS[card.name] is None:
        assert 0 < card.file_bytes <= 8_000_000
        assert card.evaluation
    else:
        assert card.file_bytes == 0


def test_unknown_names_are_answered_with_the_known():
    with pytest.raises(NotFoundError, match="did you mean 'reach'"):
        load_model("raech")
    with pytest.raises(NotFoundError, match="known: push, reach, toy, vjepa2_ac, vjepa2_push, vjepa2_reach"):
        load_model("zzz")


def test_missing_weights_say_how_to_make_them(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "PRETRAINED", tmp_path)
    with pytest.raises(UnavailableError, match="train env=push"):
        load_model("push")
    assert next(card for card in list_models() if card.name == "push").inputs is None


def test_published_weights_are_asked_for():
    with pytest.raises(UnavailableError, match="mstar-plan convert"):
        load_model("vjepa2_ac")


def test_another_architecture_is_refused(tmp_path):
    path = tmp_path / "odd.safetensors"
    for architecture, words in (("jeppa", "did you mean 'jepa'"), ("toy", "has no weights")):
        save_weights(path, {"w": torch.zeros(1)}, WeightsInfo("odd", architecture, {}))
        with pytest.raises(WeightsError, match=words):
            load_model_file(path)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InvalidInputError, match="cannot be used here"):
        load_model("toy", device="nonsense")


def test_tables_point_at_classes():
    assert all(registry._class(name) for name in ARCHITECTURES)
    assert PRETRAINED.is_dir()
