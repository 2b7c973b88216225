"""The decoder equals transformers' LlamaForCausalLM: whole prompts, chunks, steps, and ragged rows side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_llama import CONFIG, pool_of, tensors
from torch import Tensor
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM

from mstar_plan.errors import WeightsError
from mstar_plan.models.llama.config import LlamaConfig, RopeScaling
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.runtime.generation.kv_pool import PAGE
from mstar_plan.runtime.generation.paged_step import GatheredStep, SlicedStep
from mstar_plan.runtime.generation.sequence import Sequence

VARIANTS = {
    "grouped": CONFIG,
    "every head its own": replace(CONFIG, num_key_value_heads=4),
    "odd width": replace(CONFIG, num_attention_heads=2, num_key_value_heads=1, head_dim=20),
    "stretched": replace(CONFIG, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 32), rope_theta=5e5),
    "own head": replace(CONFIG, tie_word_embeddings=False),
    "biased": replace(CONFIG, attention_bias=True),
}


def theirs(config: LlamaConfig, weights: dict[str, Tensor]) -> LlamaForCausalLM:
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.rope_scaling is not None:
        rope |= {"rope_type": "llama3", **vars(config.rope_scaling)}
    own = {"rope_scaling", "rope_theta"}
    values = {name: value for name, value in vars(config).items() if name not in own}
    model = LlamaForCausalLM(TheirConfig(**values, rope_parameters=rope, pad_token_id=0)).eval()
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown
    assert all("lm_head" in name for name in missing)
    return model


def ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(2, CONFIG.vocab_size, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def feed(decoder: LlamaDecoder, sequence: Sequence, tokens: list[int], way: type = SlicedStep) -> Tensor:
    sequence.reserve(len(tokens))
    step = way(sequence.pool, [(sequence, len(tokens))])
    logits = decoder.forward(torch.tensor(tokens), step, torch.arange(len(tokens)))
    sequence.extend(tokens)
    return logits


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_whole_chunked_and_step_by_step(name: str) -> None:
    config, weights = VARIANTS[name], tensors(VARIANTS[name])
    prompt = ids(45)
    want = theirs(config, weights)(torch.tensor([prompt])).logits[0]
    decoder = LlamaDecoder(config, weights)
    for cuts in ([45], [17, 28], [1] * 45, [30, 1, 1, 13]):
        sequence, got, rest = Sequence.open(pool_of(config), prompt, 45), [], list(prompt)
        for cut in cuts:
            got.append(feed(decoder, sequence, rest[:cut]))
            rest = rest[cut:]
        torch.testing.assert_close(torch.cat(got), want, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("way", [SlicedStep, GatheredStep])
@torch.inference_mode()
def test_rows_of_other_lengths_do_not_touch_each_other(way: type) -> None:
    decoder, pool = LlamaDecoder(CONFIG, tensors()), pool_of()
    pool.store.fill_(float("nan"))  # what was never written must not be read
    prompts = [ids(5, 1), ids(40, 2), ids(23, 3)]
    sequences = [Sequence.open(pool, prompt, len(prompt) + 2) for prompt in prompts]
    new = [3, 1, 9]  # of each, so many tokens together with the others
    for sequence, prompt, count in zip(sequences, prompts, new, strict=True):
        feed(decoder, sequence, prompt[:-count], way)
    rows = list(zip(sequences, new, strict=True))
    for sequence, count in rows:
        sequence.reserve(count)
    tokens = [token for prompt, count in zip(prompts, new, strict=True) for token in prompt[-count:]]
    last = torch.tensor(new).cumsum(0) - 1
    together = decoder.forward(torch.tensor(tokens), way(pool, rows), last)
    model = theirs(CONFIG, tensors())
    alone = torch.stack([model(torch.tensor([prompt])).logits[0, -1] for prompt in prompts])
    torch.testing.assert_close(together, alone, atol=2e-5, rtol=1e-4)


@torch.inference_mode()
def test_pages_that_lie_apart_give_the_same() -> None:
    decoder, prompt = LlamaDecoder(CONFIG, tensors()), ids(50)
    want = feed(decoder, Sequence.open(pool_of(), prompt, 50), prompt)
    pool = pool_of(tokens=8 * PAGE)
    held = [pool.take(1)[0] for _ in range(8)]
    pool.give_back(held[1::2])  # every other page is free
    got = feed(decoder, Sequence.open(pool, prompt, 50), prompt)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_half_precision_is_near() -> None:
    prompt = ids(20)
    want = feed(LlamaDecoder(CONFIG, tensors()), Sequence.open(pool_of(), prompt, 20), prompt)
    pool = pool_of()
    pool.store = pool.store.to(torch.bfloat16)
    got = feed(LlamaDecoder(CONFIG, tensors(), dtype=torch.bfloat16), Sequence.open(pool, prompt, 20), prompt)
    assert got.dtype == torch.float32
    assert float((got - want).abs().mean() / want.abs().mean()) < 0.05


@torch.inference_mode()
def test_a_bias_of_the_output_may_be_missing() -> None:
    config, prompt = VARIANTS["biased"], ids(9)
    weights = tensors(config)
    zero = {name: t * 0 if "o_proj.bias" in name else t for name, t in weights.items()}
    less = {name: t for name, t in weights.items() if "o_proj.bias" not in name}
    runs = [
        feed(LlamaDecoder(config, each), Sequence.open(pool_of(config), prompt, 9), prompt) for each in (zero, less)
    ]
    torch.testing.assert_close(*runs)


@torch.inference_mode()
def test_few_rows_and_many_go_through_other_layouts_of_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = ids(20)
    want = feed(LlamaDecoder(CONFIG, tensors()), Sequence.open(pool_of(), prompt, 20), prompt)
    monkeypatch.setattr("mstar_plan.models.llama.decoder.BOTH_LAYOUTS", 0)
    got = feed(LlamaDecoder(CONFIG, tensors()), Sequence.open(pool_of(), prompt, 20), prompt)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("model.norm.weight"), "lack 'model.norm.weight'"),
        (lambda t: t.update({"model.norm.weight": torch.ones(3)}), "has shape"),
        (lambda t: t.update({"model.layers.9.x": torch.ones(3)}), "too many"),
        (lambda t: t.update({"model.layers.0.self_attn.o_proj.bias": torch.ones(32)}), "too many"),
    ],
)
def test_weights_that_do_not_fit(change, said) -> None:
    weights = tensors()
    change(weights)
    with pytest.raises(WeightsError, match=said):
        LlamaDecoder(CONFIG, weights)
