"""InferStream: one call of ModelStreamInfer: requests come in, run side by side, and answer in between one another.

A thread reads the requests; each of them runs in a thread of its own, which turns what its walk gives into answers; the
call's thread sends them. A request that fails answers with a message, and the others go on. When the client is gone,
all are taken back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from mstar_plan.errors import LimitExceededError, MStarError, UnavailableError
from mstar_plan.runtime.event_stream import EventStream
from mstar_plan.runtime.request import Done, Value
from mstar_plan.serving.dispatch import Call, failure_of
from mstar_plan.serving.inference_codec import FINAL, read_request, write_response
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb
from mstar_plan.serving.served_walks import VERSION, ServedWalks
from mstar_plan.serving.status import MAX_TEXT, code_of
from mstar_plan.serving.walk_start import WalkStart


class InferStream:
    """One call.

    Args:
        walks: What is served.
        start: Starts walks.
        limits: Bounds on messages.
        call: The call.
    """

    def __init__(self, walks: ServedWalks, start: WalkStart, limits: ServerLimits, call: Call) -> None:
        self._walks, self._start, self._limits, self._call = walks, start, limits, call
        self._answers: queue.SimpleQueue[pb.ModelStreamInferResponse | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._events: set[EventStream] = set()
        self._holders = 1  # the reader, and every request that runs: the last to leave ends the call
        self._reading = True
        self._over = False

    def answers(self, requests: Iterator[Any]) -> Iterator[pb.ModelStreamInferResponse]:
        """Answers requests until they have ended and all are answered.

        Args:
            requests: Messages, or the error that says why one could not be read.
        """
        self._call.on_end(self.cancel)
        threading.Thread(target=self._read, args=(requests,), name="infer-stream-reader", daemon=True).start()
        try:
            while (answer := self._answers.get()) is not None:
                yield answer
        finally:
            self.cancel()

    def drain(self) -> None:
        """Reads no more; the call ends when all that run are answered."""
        with self._lock:
            was_reading, self._reading = self._reading, False
        if was_reading:
            self._leave()

    def cancel(self) -> None:
        """Takes everything back: nobody listens any more."""
        with self._lock:
            self._over, events = True, list(self._events)
        for each in events:
            each.close()
        self.drain()
        self._answers.put(None)

    def _read(self, requests: Iterator[Any]) -> None:
        try:
            for request in requests:
                if not self._enter(request):
                    return
        except grpc.RpcError:  # the call has ended
            return
        finally:
            self.drain()

    def _enter(self, request: Any) -> bool:
        """Starts a request; False if the call takes no more."""
        if isinstance(request, MStarError):
            self._fail(pb.ModelInferRequest(), request)
            return True
        with self._lock:
            if not self._reading:
                return False
            self._holders += 1
        try:
            self._start.take()
        except MStarError as error:
            self._fail(request, error)
            self._leave()
            return True
        threading.Thread(target=self._run, args=(request,), name="infer-stream-request", daemon=True).start()
        return True

    def _run(self, request: pb.ModelInferRequest) -> None:
        try:
            self._answer(request)
        except Exception as error:
            self._fail(request, failure_of(error, "model_stream_infer"))
        finally:
            self._start.give_back()
            self._leave()

    def _answer(self, request: pb.ModelInferRequest) -> None:
        asked = read_request(request, self._walks, self._limits, streams=True)
        with self._start.stream(asked, self._call) as events:
            self._follow(events)
            try:
                for event in events:
                    match event:
                        case Value(name, value):
                            self._send(write_response(asked, {name: value}, final=False))
                        case Done(result):
                            outputs = {name: result.outputs[name] for name in asked.outputs}
                            self._send(write_response(asked, outputs, final=True))
            finally:
                with self._lock:
                    self._events.discard(events)

    def _follow(self, events: EventStream) -> None:
        """Remembers what runs, to be taken back with the call."""
        with self._lock:
            self._events.add(events)
            over = self._over
        if over:
            raise UnavailableError("the call has ended")

    def _send(self, response: pb.ModelInferResponse) -> None:
        answer = pb.ModelStreamInferResponse(infer_response=response)
        size, most = answer.ByteSize(), self._limits.max_message_bytes
        if size > most:
            what = f"an answer has {size} bytes; max_message_bytes is {most}"
            raise LimitExceededError(f"{what}; ask for fewer outputs", field="outputs")
        self._answers.put(answer)

    def _fail(self, request: pb.ModelInferRequest, error: MStarError) -> None:
        response = pb.ModelInferResponse(model_name=request.model_name, model_version=VERSION, id=request.id)
        response.parameters[FINAL].bool_param = True
        response.parameters["code"].string_param = code_of(error).name
        response.parameters["reason"].string_param = error.reason
        for key, value in error.details.items():
            response.parameters[key].string_param = value
        text = (str(error)[:MAX_TEXT] or error.reason).encode(errors="replace").decode()
        self._answers.put(pb.ModelStreamInferResponse(error_message=text, infer_response=response))

    def _leave(self) -> None:
        with self._lock:
            self._holders -= 1
            last = self._holders == 0
        if last:
            self._answers.put(None)
