"""InferenceService: what each call of `inference.GRPCInferenceService` does, on parsed messages, without the socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from mstar_plan import __version__
from mstar_plan.errors import DeadlineError, OverloadedError
from mstar_plan.runtime.request import Request
from mstar_plan.serving.dispatch import Call
from mstar_plan.serving.inference_codec import Asked, describe, read_request, write_response
from mstar_plan.serving.inference_stream import InferStream
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb
from mstar_plan.serving.served_walks import ServedWalks
from mstar_plan.serving.walk_start import WalkStart

SERVER = "mstar-plan"
EXTENSIONS = ("parameters", "model_stream_infer")
RETRY_AFTER_S = 0.05


class InferenceService:
    """Answers the calls of `inference.GRPCInferenceService`. Thread-safe.

    Args:
        walks: What is served.
        limits: What one message may hold, and how much goes on at one time.
    """

    def __init__(self, walks: ServedWalks, limits: ServerLimits) -> None:
        self._walks, self._limits = walks, limits
        self._start = WalkStart(walks.runtime, limits)
        self._lock = threading.Lock()
        self._streams: set[InferStream] = set()
        self._draining = False

    def server_live(self, request: pb.ServerLiveRequest, call: Call) -> pb.ServerLiveResponse:
        """Yes."""
        del request, call
        return pb.ServerLiveResponse(live=True)

    def server_ready(self, request: pb.ServerReadyRequest, call: Call) -> pb.ServerReadyResponse:
        """Whether all models are ready, and the server is not about to end."""
        del request, call
        ready = all(self._walks.problem(name) is None for name in self._walks.names())
        return pb.ServerReadyResponse(ready=ready and not self._draining)

    def model_ready(self, request: pb.ModelReadyRequest, call: Call) -> pb.ModelReadyResponse:
        """Whether a model is ready; one that is not known is an error, since it never will be."""
        del call
        target = self._walks.find(request.name, request.version)
        return pb.ModelReadyResponse(ready=self._walks.problem(target.model) is None and not self._draining)

    def server_metadata(self, request: pb.ServerMetadataRequest, call: Call) -> pb.ServerMetadataResponse:
        """Says what this server is."""
        del request, call
        return pb.ServerMetadataResponse(name=SERVER, version=__version__, extensions=EXTENSIONS)

    def model_metadata(self, request: pb.ModelMetadataRequest, call: Call) -> pb.ModelMetadataResponse:
        """Says what a walk takes and gives."""
        del call
        return describe(self._walks.find(request.name, request.version))

    def model_infer(self, request: pb.ModelInferRequest, call: Call) -> pb.ModelInferResponse:
        """Runs a walk and waits for it; a call that ends takes it back."""
        with self._start.place():
            asked = read_request(request, self._walks, self._limits, streams=False)
            pending, left_s = self._start.submit(asked, call)
            call.on_end(pending.cancel)
            outputs = _wait(pending, asked, left_s)
        return write_response(asked, {name: outputs[name] for name in asked.outputs})

    def model_stream_infer(self, requests: Iterator[Any], call: Call) -> Iterator[pb.ModelStreamInferResponse]:
        """Runs walks side by side and answers in the order in which there is something to say."""
        stream = InferStream(self._walks, self._start, self._limits, call)
        with self._lock:
            if len(self._streams) >= self._limits.max_concurrent_walks:
                what = f"{len(self._streams)} streams are open, which is max_concurrent_walks"
                raise OverloadedError(f"{what}; try again in {RETRY_AFTER_S} s", retry_after_s=RETRY_AFTER_S)
            self._streams.add(stream)
            draining = self._draining
        try:
            if draining:
                stream.drain()
            yield from stream.answers(requests)
        finally:
            with self._lock:
                self._streams.discard(stream)

    def drain(self) -> None:
        """Takes no more requests of streams that are open; those that run go on, and then the streams end."""
        with self._lock:
            self._draining = True
            streams = list(self._streams)
        for stream in streams:
            stream.drain()


def _wait(pending: Request, asked: Asked, left_s: float | None) -> Any:
    try:
        return pending.result(left_s).outputs
    except TimeoutError as error:
        pending.cancel()
        what = f"walk {asked.target.face.walk!r} had {left_s:.3g} s"
        raise DeadlineError(f"{what}, and did not end in time; allow more", field="timeout") from error
