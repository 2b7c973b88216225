"""Times the writing engine against transformers' `generate` on the same weights, side by side.

python scripts/bench_language.py --json runs/bench_language.json

All sides take turns in one process with the same number of threads; the best of equally many turns counts, and the
ratio of medians stands beside it. Batches are ragged: prompts and answers differ in length, as real ones do; only
tokens that a request asked for are counted. Where `llama-cpp-python` is installed, llama.cpp takes part with the GGUF
file's packed weights.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from mstar_plan.build_families import cores, running
from mstar_plan.evaluation.machine import describe_machine
from mstar_plan.families.abilities import ChatMessage, TextOptions
from mstar_plan.families.llama import packaged_smollm2
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.runtime.request import Value
from mstar_plan.runtime.runtime import Runtime

TOPICS = ["a robot", "the sea", "a small town", "an old clock", "winter", "a lost key", "music", "the moon"]
LENGTHS = [96, 24, 64, 16, 48, 80, 32, 56]  # tokens of each answer
ALONE = 64


def messages(topic: str, number: int) -> list[dict[str, str]]:
    """A question; the later ones are longer."""
    return [{"role": "user", "content": "Please think of it. " * (4 * number) + f"Tell me about {topic}."}]


class Ours:
    """The engine behind its runtime, as a server uses it."""

    def __init__(self, servable: Servable, runtime: Runtime) -> None:
        self._servable, self._runtime = servable, runtime

    def start(self, number: int, tokens: int) -> Any:
        """Submits a request."""
        assert self._servable.text is not None
        chat = [ChatMessage(m["role"], m["content"]) for m in messages(TOPICS[number], number)]
        call = self._servable.text.chat(chat, TextOptions(max_tokens=tokens, temperature=0, ignore_end=True))
        return self._runtime.stream(call.walk, call.values, emit=call.emit, graph=self._servable.name)

    def forget(self) -> None:
        """Forgets known prompts, so that every turn reads its prompts."""
        self._servable.graph.components["step"].pool.forget()  # type: ignore[attr-defined]

    def alone(self) -> float:
        """Seconds of one answer."""
        self.forget()
        began = time.perf_counter()
        for _ in self.start(0, ALONE):
            pass
        return time.perf_counter() - began

    def together(self) -> float:
        """Seconds of all at once."""
        self.forget()
        began = time.perf_counter()
        streams = [self.start(number, tokens) for number, tokens in enumerate(LENGTHS)]
        for stream in streams:
            for _ in stream:
                pass
        return time.perf_counter() - began

    def first_token(self, number: int) -> float:
        """Seconds to the first text of one answer."""
        self.forget()
        began = time.perf_counter()
        with self.start(number, 4) as stream:
            for event in stream:
                if isinstance(event, Value) and event.value:
                    return time.perf_counter() - began
        raise AssertionError("no token came")


class Transformers:
    """The library's model on the same file."""

    def __init__(self, dtype: torch.dtype) -> None:
        path = packaged_smollm2()
        self._tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, padding_side="left")
        plain = GgufConfig(dequantize=True)  # as we have them; its packed weights compute in float32 whatever the dtype
        self._model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=dtype, quantization_config=plain
        ).eval()

    def _generate(self, numbers: Sequence[int], tokens: int) -> float:
        texts = [
            self._tokenizer.apply_chat_template(messages(TOPICS[n], n), add_generation_prompt=True, tokenize=False)
            for n in numbers
        ]
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        began = time.perf_counter()
        with torch.inference_mode():
            self._model.generate(**inputs, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
        return time.perf_counter() - began

    def alone(self) -> float:
        """Seconds of one answer."""
        return self._generate([0], ALONE)

    def one_by_one(self) -> float:
        """Seconds of all, one after the other."""
        return sum(self._generate([number], tokens) for number, tokens in enumerate(LENGTHS))

    def batch(self) -> float:
        """Seconds of all in one static batch, which runs until the longest has ended."""
        return self._generate(range(len(LENGTHS)), max(LENGTHS))


class LlamaCpp:
    """llama.cpp on the same file, whose weights it keeps packed; its Python package knows one request at a time."""

    def __init__(self, threads: int) -> None:
        llama_cpp = importlib.import_module("llama_cpp")  # a comparison that few machines can make
        self._model = llama_cpp.Llama(
            str(packaged_smollm2()), n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self._never_ending = {str(token): -100.0 for token in (0, 2)}  # its two ends of text

    def _answer(self, number: int, tokens: int) -> float:
        self._model.reset()
        began = time.perf_counter()
        answer = self._model.create_chat_completion(
            messages(TOPICS[number], number), max_tokens=tokens, temperature=0, logit_bias=self._never_ending
        )
        spent = time.perf_counter() - began
        if answer["usage"]["completion_tokens"] != tokens:
            raise RuntimeError(f"llama.cpp wrote {answer['usage']['completion_tokens']} tokens, wanted {tokens}")
        return spent

    def alone(self) -> float:
        """Seconds of one answer."""
        return self._answer(0, ALONE)

    def one_by_one(self) -> float:
        """Seconds of all, one after the other."""
        return sum(self._answer(number, tokens) for number, tokens in enumerate(LENGTHS))


def turns(sides: dict[str, Callable[[], float]], count: int) -> dict[str, list[float]]:
    """Seconds of each side, which take turns; a first turn of each is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(count + 1):
        for name, run in sides.items():
            spent = run()
            if turn:
                seconds[name].append(spent)
    return seconds


def row(dtype: str, what: str, tokens: int, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Tokens/s of each side and our ratio to the others."""
    best = {name: tokens / min(spent) for name, spent in seconds.items()}
    middle = {name: tokens / statistics.median(spent) for name, spent in seconds.items()}
    others = [name for name in seconds if name != "ours"]
    return {
        "dtype": dtype,
        "what": what,
        "tokens_per_s": best,
        "ratio": {name: best["ours"] / best[name] for name in others},
        "ratio_of_medians": {name: middle["ours"] / middle[name] for name in others},
    }


def measure(dtype: str, count: int, threads: int) -> list[dict[str, Any]]:
    """All rows of one dtype."""
    theirs = Transformers(getattr(torch, dtype))
    with running("smollm2", FamilyConfig(dtype=dtype, threads=threads)) as (servable, runtime):
        ours = Ours(servable, runtime)
        alone = {"ours": ours.alone, "transformers": theirs.alone}
        many = {"ours": ours.together, "transformers_one_by_one": theirs.one_by_one, "transformers_batch": theirs.batch}
        if importlib.util.find_spec("llama_cpp") is not None:
            packed = LlamaCpp(threads)
            alone["llama_cpp"], many["llama_cpp_one_by_one"] = packed.alone, packed.one_by_one
        rows = [row(dtype, "one request", ALONE, turns(alone, count))]
        rows.append(row(dtype, "8 ragged requests", sum(LENGTHS), turns(many, max(1, count // 2))))
        first = sorted(ours.first_token(number % len(TOPICS)) for number in range(3 * len(TOPICS)))
        rows.append({"dtype": dtype, "what": "first token", "p50_s": statistics.median(first), "max_s": first[-1]})
    return rows


def main() -> None:
    """Parses, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [each for dtype in options.dtypes for each in measure(dtype, options.turns, options.threads)]
    for each in rows:
        print(json.dumps(each))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        made = {"machine": describe_machine(device="cpu"), "threads": options.threads, "rows": rows}
        options.json.write_text(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
