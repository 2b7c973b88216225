"""The sentence encoder: equal to transformers' BertModel, and a text's vector does not depend on its neighbours."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.minilm import (
    SMALL,
    TOKENS_AT_ONCE,
    WASTE,
    BertConfig,
    BertEncoder,
    EmbedStep,
    passes,
    tensor_shapes,
)
from mstar_plan.walks.batch import Batch

SIZES = {
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 32,
}  # fmt: skip
CONFIG = BertConfig(**SIZES)


def reference():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**SIZES, layer_norm_eps=1e-12, initializer_range=0.3))
    return model.double().eval().requires_grad_(False)


def weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: 0.3 * torch.randn(shape, generator=generator).double() for name, shape in tensor_shapes(CONFIG)}


def texts(rows: int, most: int = 20, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, most + 1, (rows,), generator=generator)
    ids = torch.randint(0, 50, (rows, int(lengths.max())), generator=generator)
    return ids * (torch.arange(ids.shape[1]) < lengths[:, None]), lengths


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_equals_transformers(prefix: str) -> None:
    model = reference()
    state = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    encoder = BertEncoder(CONFIG, state, dtype=torch.float64)
    ids, lengths = texts(7)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    want = model(ids, attention_mask=mask).last_hidden_state
    got = encoder.forward(ids, lengths)
    torch.testing.assert_close(got * mask[..., None], want * mask[..., None], rtol=0, atol=1e-10)
    pooled = (want * mask[..., None]).sum(1) / lengths[:, None]
    unit = (pooled / pooled.norm(dim=-1, keepdim=True)).float()
    torch.testing.assert_close(encoder.embed(ids, lengths), unit, rtol=0, atol=1e-6)


@torch.inference_mode()
def test_requests_of_other_lengths_join() -> None:
    encoder = BertEncoder(CONFIG, weights(), dtype=torch.float64)
    step = EmbedStep(encoder)
    requests = [texts(rows, most, seed=rows) for rows, most in ((1, 3), (40, 32), (2, 20))]
    answers = step.run([Batch({"ids": ids, "lengths": lengths}, len(ids)) for ids, lengths in requests])
    for (ids, lengths), answer in zip(requests, answers, strict=True):
        assert torch.equal(answer["tokens"], lengths)
        alone = [encoder.embed(row[None, :n], torch.tensor([n]))[0] for row, n in zip(ids, lengths, strict=True)]
        torch.testing.assert_close(answer["embeddings"], torch.stack(alone), rtol=0, atol=1e-6)
    again = step(Batch({"ids": requests[0][0], "lengths": requests[0][1]}, 1))["embeddings"]
    torch.testing.assert_close(again, answers[0]["embeddings"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("lengths", [[5], [1] * 9000, [512] * 30, [3, 500, 4, 498, 2], list(range(1, 300))])
def test_passes_bound_padding_and_memory(lengths: list[int]) -> None:
    groups = list(passes(lengths))
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        padded, real = max(lengths[i] for i in group) * len(group), sum(lengths[i] for i in group)
        assert lengths[group[-1]] == max(lengths[i] for i in group)
        assert len(group) == 1 or (padded <= TOKENS_AT_ONCE and (padded <= SMALL or padded <= WASTE * real))
    if lengths == [3, 500, 4, 498, 2]:
        assert len(groups) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("encoder.layer.1.output.dense.bias"), "is missing"),
        (lambda w: w.update({"embeddings.LayerNorm.weight": torch.ones(3)}), "asks for"),
        (lambda w: w.update(more=torch.ones(3)), "more is not known"),
        (lambda w: w["embeddings.LayerNorm.weight"].fill_(torch.inf), "infinity"),
    ],
)
def test_wrong_weights_are_named(change, said: str) -> None:
    state = weights()
    change(state)
    with pytest.raises(WeightsError, match=said):
        BertEncoder(CONFIG, state)


def test_the_pooler_is_not_needed() -> None:
    BertEncoder(CONFIG, weights() | {"pooler.dense.bias": torch.ones(3), "embeddings.position_ids": torch.ones(1)})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "roberta"}, "model_type"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"num_attention_heads": 5}, "multiple"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"vocab_size": 0}, "vocab_size"),
    ],
)
def test_wrong_configs_are_named(change: dict, said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        BertConfig.from_published({**SIZES, **change})
    with pytest.raises(WeightsError, match="lacks a size"):
        BertConfig.from_published({"hidden_size": 3})
