"""Toy models that generate: a flow policy, guidance, a language model with a codec, and an omni model."""

from __future__ import annotations

import torch
from torch import Tensor
from toy_cache import Cache
from toy_family import Family, Values, close, family, noise

from mstar_plan.walks.component import FunctionComponent
from mstar_plan.walks.step import Collect, Loop, Node, Parallel, Sequential
from mstar_plan.walks.stream import ChunkPolicy, FixedChunks, LeftContext, Stream
from mstar_plan.walks.walk import Walk


def flow() -> Family:
    def velocity(x: Tensor, cache: Cache, i: Tensor) -> Tensor:
        return (aim(cache.dense(), x) - x) / (1 - i.double()[:, None, None] / 10)

    def aim(prefix: Tensor, x: Tensor) -> Tensor:
        ramp = torch.arange(1, x.shape[1] + 1, dtype=x.dtype) / x.shape[1]
        return prefix.mean(1)[:, None, : x.shape[2]] * ramp[None, :, None]

    body = Sequential((Node("denoise", ("x", "prefix", "i"), ("v",)), Node("euler", ("x", "v"), ("x",))))
    denoising = Loop(body, times=10, carry={"x": "noise"}, index="i", name="denoising")
    step = Sequential((Node("prefill", ("patches",), ("prefix",)), denoising))
    components = {
        "prefill": FunctionComponent(Cache.of, ("patches",), ("prefix",)),
        "denoise": FunctionComponent(velocity, ("x", "prefix", "i"), ("v",)),
        "euler": FunctionComponent(lambda x, v: x + 0.1 * v, ("x", "v"), ("x",)),
    }
    requests = [
        {"patches": noise(n, rows, patches, 3), "noise": noise(n + 50, rows, 5, 2)}
        for n, (rows, patches) in enumerate([(1, 6), (2, 6), (1, 9), (3, 6)])
    ]

    def check(values: Values, outputs: Values) -> None:
        close(outputs["x"], aim(values["patches"], values["noise"]))  # a straight flow ends at its aim

    return family(Walk("flow", step, ("patches", "noise"), ("x",)), components, requests, check)


def guidance() -> Family:
    contexts = {"all": "full", "image": "with_image", "none": "prefix"}
    denoise = [
        Node(f"denoise_{name}", {"x": "x", "context": wire}, {"v": f"v_{name}"}, "denoise")
        for name, wire in contexts.items()
    ]
    combine = Node("combine", ("x", "v_all", "v_image", "v_none", "text_scale", "image_scale"), ("x",))
    body = Sequential((Parallel(tuple(denoise)), combine))
    fork_node = Node("fork", ("prefix", "image", "text"), ("full", "with_image"))
    drawing = Loop(body, times="steps", carry={"x": "noise"}, collect={"x": "path"}, name="drawing")
    step = Sequential((Node("prefill", ("patches",), ("prefix",)), fork_node, drawing))

    def fork(prefix: Cache, image: Tensor, text: Tensor) -> tuple[Cache, Cache]:
        with_image = prefix.append(image)
        return with_image.append(text), with_image

    def guide(x: Tensor, full: Tensor, image: Tensor, none: Tensor, text_scale: float, image_scale: float) -> Tensor:
        return x + 0.25 * (none + image_scale * (image - none) + text_scale * (full - image))

    scales = ("text_scale", "image_scale")
    components = {
        "prefill": FunctionComponent(Cache.of, ("patches",), ("prefix",)),
        "fork": FunctionComponent(fork, ("prefix", "image", "text"), ("full", "with_image")),
        "denoise": FunctionComponent(lambda x, context: context.dense().mean(1) - x, ("x", "context"), ("v",)),
        "combine": FunctionComponent(guide, ("x", "v_all", "v_image", "v_none", *scales), ("x",)),
    }
    inputs = ("patches", "image", "text", "noise", "steps", *scales)
    requests = [
        {
            "patches": noise(n, rows, 3, 2),
            "image": noise(n + 20, rows, 2),
            "text": noise(n + 40, rows, 2),
            "noise": noise(n + 60, rows, 2),
            "steps": steps,
            "text_scale": text_scale,
            "image_scale": 1.5,
        }
        for n, (rows, steps, text_scale) in enumerate([(1, 6, 4.0), (2, 6, 4.0), (1, 3, 4.0), (1, 6, 2.0)])
    ]

    def check(values: Values, outputs: Values) -> None:
        some = torch.cat([values["patches"], values["image"][:, None]], 1)
        full = torch.cat([some, values["text"][:, None]], 1).mean(1)
        some, none = some.mean(1), values["patches"].mean(1)
        aim = none + values["image_scale"] * (some - none) + values["text_scale"] * (full - some)
        close(outputs["x"], aim + (values["noise"] - aim) * 0.75 ** values["steps"])
        assert outputs["path"].shape == (len(aim), values["steps"], 2)

    return family(Walk("guidance", step, inputs, ("x", "path")), components, requests, check)


END, VOCABULARY = 0, 16


def next_token(token: Tensor) -> Tensor:
    return torch.where(token == END, END, (5 * token + 3) % VOCABULARY)  # a row that has ended stays at its end


def written(first: Tensor, most: int) -> Tensor:
    """[B] to [B, 1 + n], until every row has ended."""
    tokens = [first]
    while len(tokens) <= most and (len(tokens) == 1 or bool((tokens[-1] != END).any())):
        tokens.append(next_token(tokens[-1]))
    return torch.stack(tokens, 1)


def audio_of(tokens: Tensor) -> Tensor:
    """[B, n] to [B, 2 n]: every token sounds twice, over half of the one before it."""
    before = torch.cat([torch.zeros_like(tokens[:, :1]), tokens[:, :-1]], 1)
    return torch.stack([tokens + 0.5 * before, 2 * tokens - 0.5 * before], 2).flatten(1)


def vocode(chunk: Tensor, new: int) -> Tensor:
    return audio_of(chunk.double())[:, -2 * new :]


def vocode_on(chunk: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Without left context in the chunk, the codec carries its last token itself."""
    return audio_of(torch.cat([tail[:, None], chunk], 1).double())[:, 2:], chunk[:, -1]


def decode(policy: ChunkPolicy, name: str) -> Family:
    carries_tail = isinstance(policy, FixedChunks)
    writing = Loop(
        Node("decode", ("token", "cache"), ("token", "cache", "done")),
        times="max_tokens",
        carry=("token", "cache"),
        until="done",
        collect={"token": "tokens"},
        name="writing",
    )
    sounding = Loop(
        Node("codec", *((("chunk", "tail"), ("audio", "tail")) if carries_tail else (("chunk", "new"), ("audio",)))),
        stream="chunk",
        carry=("tail",) if carries_tail else (),
        collect={"audio": Collect("speech", concat=True)},
        name="sounding",
    )
    stream = Stream("token", "chunk", policy, new=None if carries_tail else "new")
    step = Parallel((Sequential((Node("prefill", ("prompt",), ("token", "cache")), writing)), sounding), (stream,))
    inputs = ("prompt", "max_tokens", *(("tail",) if carries_tail else ()))

    def go_on(token: Tensor, cache: Cache) -> tuple[Tensor, Cache, Tensor]:
        assert torch.equal(cache.dense()[:, -1, 0], token.double())
        following = next_token(token)
        return following, cache.append(following[:, None].double()), following == END

    def prefill(prompt: Tensor) -> tuple[Tensor, Cache]:
        return prompt[:, -1], Cache.of(prompt[:, :, None].double())

    components = {
        "prefill": FunctionComponent(prefill, ("prompt",), ("token", "cache")),
        "decode": FunctionComponent(go_on, ("token", "cache"), ("token", "cache", "done")),
        "codec": FunctionComponent(vocode_on, ("chunk", "tail"), ("audio", "tail"))
        if carries_tail
        else FunctionComponent(vocode, ("chunk", "new"), ("audio",)),
    }
    prompts = [([[3, 7]], 20), ([[1, 2]], 20), ([[5, 5]], 4), ([[9, 2]], 1), ([[2, 6], [1, 13]], 20)]
    requests = [{"prompt": torch.tensor(p), "max_tokens": most} for p, most in prompts]
    if carries_tail:
        requests = [{**r, "tail": torch.zeros(len(r["prompt"]), dtype=torch.int64)} for r in requests]

    def check(values: Values, outputs: Values) -> None:
        want = written(values["prompt"][:, -1], values["max_tokens"])
        assert torch.equal(outputs["tokens"], want[:, 1:])
        close(outputs["speech"], audio_of(want.double()))  # the chunks, put together, are the one shot

    return family(Walk(name, step, inputs, ("tokens", "speech")), components, requests, check)


def omni() -> Family:
    thinking = Loop(
        Node("think", ("token",), ("token", "done")),
        times=30,
        carry={"token": "prompt"},
        until="done",
        collect={"token": "text"},
        name="thinking",
    )
    talk = Node("talk", ("heard", "fresh", "voice"), {"code": "code", "voice": "voice"})
    talking = Loop(talk, stream="heard", carry=("voice",), name="talking")
    sounding = Loop(
        Node("codec", {"chunk": "codes", "tail": "tail"}, ("audio", "tail")),
        stream="codes",
        carry=("tail",),
        collect={"audio": Collect("speech", concat=True)},
        name="sounding",
    )
    streams = (Stream("token", "heard", LeftContext(2, left=1), new="fresh"), Stream("code", "codes", FixedChunks(3)))
    step = Parallel((sounding, talking, thinking), streams)  # consumers first: they must wait

    def think(token: Tensor) -> tuple[Tensor, Tensor]:
        following = next_token(token)
        return following, following == END

    def say(heard: Tensor, fresh: int, voice: Tensor) -> tuple[Tensor, Tensor]:
        code = (3 * heard[:, -fresh:].sum(1) + heard[:, 0] + voice) % 32
        return code, code

    components = {
        "think": FunctionComponent(think, ("token",), ("token", "done")),
        "talk": FunctionComponent(say, ("heard", "fresh", "voice"), ("code", "voice")),
        "codec": FunctionComponent(vocode_on, ("chunk", "tail"), ("audio", "tail")),
    }
    requests = [
        {"prompt": torch.tensor(p), "voice": torch.tensor(v), "tail": torch.zeros(len(p), dtype=torch.int64)}
        for p, v in [([1], [4]), ([2], [9]), ([8], [0]), ([3, 12], [1, 2])]
    ]

    def check(values: Values, outputs: Values) -> None:
        text = written(values["prompt"], 30)[:, 1:]
        assert torch.equal(outputs["text"], text)
        codes, voice = [], values["voice"]
        for at in range(0, text.shape[1], 2):
            fresh = text[:, at : at + 2]
            voice = (3 * fresh.sum(1) + text[:, max(0, at - 1)] + voice) % 32
            codes.append(voice)
        assert torch.equal(outputs["voice"], voice)
        close(outputs["speech"], audio_of(torch.stack(codes, 1).double()))

    inputs, outputs = ("prompt", "voice", "tail"), ("text", "voice", "speech")
    return family(Walk("omni", step, inputs, outputs), components, requests, check)
