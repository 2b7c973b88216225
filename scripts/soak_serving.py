"""Sends thousands of mixed requests to a real server, hangs up on many of them, and looks for what is left behind.

python scripts/soak_serving.py --requests 10000 --json runs/soak_serving.json

The server runs in this process, so that its pools can be looked into; the clients are httpx over a real socket. At the
end no page may be held, no request be open, and memory must have stopped growing.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import gc
import io
import json
import random
import statistics
import time
import wave
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from mstar_plan.build import build_planning
from mstar_plan.commands.serve import ServeConfig
from mstar_plan.config import load
from mstar_plan.evaluation.machine import describe_machine
from mstar_plan.families.servable import FamilyConfig
from mstar_plan.serving.http.config import HttpConfig
from mstar_plan.serving.http.server import HttpServer

WORDS = [
    "robot",
    "arm",
    "goal",
    "camera",
    "plan",
    "move",
    "push",
    "reach",
    "wall",
    "table",
    "cup",
    "red",
    "blue",
    "left",
    "right",
]
PAGE_BYTES = 4096


def rss_mb() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


def silence() -> bytes:
    """A WAV file of half a second of quiet noise."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((np.random.default_rng(0).normal(0, 20, 8000)).astype("<i2").tobytes())
    return out.getvalue()


class Client:
    """Sends one kind of request after the other, by chance.

    Args:
        address: Of the server.
        seed: Of the choices.
    """

    def __init__(self, address: str, seed: int) -> None:
        self._http = httpx.AsyncClient(base_url=f"http://{address}", timeout=120)
        self._random = random.Random(seed)
        self.ends: collections.Counter[str] = collections.Counter()
        self.seconds: dict[str, list[float]] = collections.defaultdict(list)
        self._wav = silence()

    async def one(self) -> None:
        """One request; how it ended is counted."""
        kinds = {
            "chat": 30,
            "completion": 12,
            "embedding": 10,
            "walk": 28,
            "speech": 6,
            "transcription": 2,
            "wrong": 12,
        }
        kind = self._random.choices(list(kinds), list(kinds.values()))[0]
        began = time.perf_counter()
        end = await getattr(self, f"_{kind}")()
        self.seconds[kind].append(time.perf_counter() - began)
        self.ends[f"{kind} {end}"] += 1

    def _text(self, most: int) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(1, most)))

    async def _post(self, path: str, body: dict[str, Any]) -> str:
        return str((await self._http.post(path, json=body)).status_code)

    async def _stream(self, path: str, body: dict[str, Any]) -> str:
        """Reads a streamed answer; hangs up on half of them after some pieces."""
        leaves = self._random.random() < 0.5
        left = self._random.randint(0, 3)
        async with self._http.stream("POST", path, json=body) as answer:
            async for _ in answer.aiter_bytes():
                left -= 1
                if leaves and left < 0:
                    return "hung up"
        return str(answer.status_code)

    async def _chat(self) -> str:
        body = {
            "model": "smollm2",
            "messages": [{"role": "user", "content": self._text(30)}],
            "max_tokens": self._random.randint(1, 6),
            "n": self._random.choice([1, 1, 1, 2]),
            "temperature": self._random.choice([0, 0.8]),
            "seed": self._random.randint(0, 9),
            "stream": True,
        }
        return await self._stream("/v1/chat/completions", body)

    async def _completion(self) -> str:
        body = {"model": "smollm2", "prompt": self._text(60), "max_tokens": self._random.randint(1, 4)}
        if self._random.random() < 0.4:  # gives up while it waits
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(self._random.random() * 0.3):
                    return await self._post("/v1/completions", body)
            return "given up"
        return await self._post("/v1/completions", body)

    async def _embedding(self) -> str:
        return await self._post("/v1/embeddings", {"model": "minilm", "input": [self._text(20), self._text(5)]})

    async def _walk(self) -> str:
        frames = {"dtype": "uint8", "shape": [1, 1, 64, 64, 3], "data": [128] * (64 * 64 * 3)}
        return await self._post("/v1/walks/toy/encode", {"inputs": {"frames": frames}})

    async def _speech(self) -> str:
        body = {"model": "hibari", "input": self._text(4), "voice": "", "response_format": "pcm"}
        return await self._stream("/v1/audio/speech", body)

    async def _transcription(self) -> str:
        files = {"file": ("quiet.wav", self._wav)}
        answer = await self._http.post("/v1/audio/transcriptions", files=files, data={"model": "whisper_tiny"})
        return str(answer.status_code)

    async def _wrong(self) -> str:
        path, body = self._random.choice(
            [
                ("/v1/chat/completions", {"model": "nobody", "messages": [{"role": "user", "content": "x"}]}),
                ("/v1/chat/completions", {"model": "smollm2", "messages": []}),
                ("/v1/completions", {"model": "smollm2", "prompt": "x", "max_tokens": 10**9}),
                ("/v1/walks/toy/encode", {"inputs": {"frames": 3}}),
                ("/v1/embeddings", {"model": "smollm2", "input": "x"}),
            ]
        )
        return await self._post(path, body)

    async def close(self) -> None:
        """Ends its connections."""
        await self._http.aclose()


async def drive(address: str, count: int, clients: int, look: Any) -> list[Client]:
    """Sends all requests; `look` is called now and then."""
    made = [Client(address, seed) for seed in range(clients)]
    left = collections.deque(range(count))

    async def work(client: Client) -> None:
        while left:
            number = left.popleft()
            try:
                await client.one()
            except httpx.HTTPError as error:
                client.ends[f"broken {type(error).__name__}"] += 1
            if number % max(1, count // 20) == 0:
                look(number)

    await asyncio.gather(*(work(client) for client in made))
    for client in made:
        await client.close()
    return made


def main() -> None:
    """Serves, drives, looks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    task = load("serve", ["models=[toy]", "task=toy"], ServeConfig)
    assert task.task is not None
    families = {name: FamilyConfig(kv_tokens=4096) for name in ("smollm2", "hibari", "whisper_tiny", "minilm")}
    with (
        build_planning(
            {"toy": (task.task, task)}, {name: FamilyConfig(kv_tokens=4096) for name in families}
        ) as planning,
        HttpServer(planning.servables, planning.runtime, HttpConfig(port=0)) as server,
    ):
        pool = planning.families["smollm2"].graph.components["step"].pool  # type: ignore[attr-defined]
        memory: list[float] = []

        def look(number: int) -> None:
            gc.collect()
            memory.append(rss_mb())
            print(
                f"{number}: {memory[-1]:.0f} MB, {pool.held} pages held, {len(planning.runtime._open)} open", flush=True
            )

        began = time.perf_counter()
        clients = asyncio.run(drive(server.address, options.requests, options.clients, look))
        spent = time.perf_counter() - began
        time.sleep(2)
        look(options.requests)
        ends = sum((client.ends for client in clients), collections.Counter[str]())
        kinds = sorted({kind for client in clients for kind in client.seconds})
        seconds = {kind: sorted(s for client in clients for s in client.seconds[kind]) for kind in kinds}
        row = {
            "requests": options.requests,
            "seconds": round(spent, 1),
            "ends": dict(sorted(ends.items())),
            "p50_s": {kind: round(statistics.median(each), 3) for kind, each in seconds.items()},
            "p99_s": {kind: round(each[int(0.99 * len(each))], 3) for kind, each in seconds.items()},
            "pages_held": pool.held,
            "requests_open": len(planning.runtime._open),
            "rss_mb": [round(each) for each in memory],
            "machine": describe_machine(device="cpu"),
        }
    print(json.dumps({key: value for key, value in row.items() if key != "machine"}, indent=1))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
