"""ModelStreamInfer with Triton's own stream client: parts in order, failures in band, and nothing runs for nobody."""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from inference_world import Toy, sent, served, toy, until
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.inference_codec import FINAL
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb
from mstar_plan.serving.proto.inference import inference_pb2_grpc
from mstar_plan.serving.server import PlanningServer

ROW = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def model() -> Toy:
    return toy()


@pytest.fixture(scope="module")
def world(model: Toy) -> Iterator[tuple[PlanningServer, Runtime]]:
    with served(model) as made:
        yield made


@pytest.fixture
def client(world: tuple[PlanningServer, Runtime]) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(world[0].address) as made:
        yield made


def started(client: triton.InferenceServerClient) -> queue.SimpleQueue[object]:
    """Opens the client's stream; what comes is in the queue."""
    came: queue.SimpleQueue[object] = queue.SimpleQueue()
    client.start_stream(lambda result, error: came.put(error or result))
    return came


def drained(came: queue.SimpleQueue[object]) -> list[object]:
    return [came.get_nowait() for _ in range(came.qsize())]


def message(number: int = 1, name: str = "toy/count", **extra) -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name=name, id=str(number), **extra)
    made.inputs.add(name="x", datatype="FP32", shape=[1, 1]).contents.fp32_contents.append(number)
    return made


def test_parts_come_in_order_and_the_outputs_last(client):
    came = started(client)
    client.async_stream_infer("toy/count", [sent("x", ROW)], request_id="7", parameters={"stream": "said"})
    client.stop_stream()
    answers = drained(came)
    assert [a.as_numpy("said").tolist() for a in answers[:-1]] == [[5.0], [7.0], [9.0]]
    assert answers[-1].as_numpy("all").tolist() == [[5.0, 7.0, 9.0]]
    assert answers[-1].as_numpy("total").tolist() == [[4.0, 5.0]]
    assert [a.get_response().parameters[FINAL].bool_param for a in answers] == [False] * 3 + [True]
    assert {a.get_response().id for a in answers} == {"7"}


def test_a_walk_without_streams_answers_once(client):
    came = started(client)
    client.async_stream_infer("toy", [sent("x", ROW)], enable_empty_final_response=True)
    client.stop_stream()
    [answer] = drained(came)
    assert answer.as_numpy("sum").tolist() == ROW.tolist()


def test_parts_come_while_the_walk_runs(world, client):
    came = started(client)
    client.async_stream_infer("toy/wait", [sent("x", ROW)])
    assert came.get(timeout=5).as_numpy("x").tolist() == ROW.tolist()
    client.stop_stream(cancel_requests=True)
    assert until(lambda: not world[1]._open)


def test_one_that_fails_does_not_harm_the_others(client):
    came = started(client)
    client.async_stream_infer("toy/count", [sent("x", ROW)], request_id="a")
    client.async_stream_infer("toy/fail", [sent("x", ROW)], request_id="b")
    client.async_stream_infer("tpy", [sent("x", ROW)], request_id="c")
    client.async_stream_infer("toy/count", [sent("x", ROW)], request_id="d", parameters={"tims": 1})
    client.async_stream_infer("toy/count", [sent("x", ROW)], request_id="e", parameters={"times": 1})
    client.stop_stream()
    answers = drained(came)
    errors = sorted(str(each) for each in answers if isinstance(each, InferenceServerException))
    assert [part in error for part, error in zip(("'fail' failed", "'toy'", "'times'"), errors, strict=True)]
    assert len(errors) == 3
    done = {
        each.get_response().id: each.as_numpy("all").tolist()
        for each in answers
        if not isinstance(each, InferenceServerException) and each.get_response().parameters[FINAL].bool_param
    }
    assert done == {"a": [[5.0, 7.0, 9.0]], "e": [[5.0]]}


def test_a_failure_names_its_request(world):
    with grpc.insecure_channel(world[0].address) as channel:
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        [answer] = stub.ModelStreamInfer(iter([message(3, "toy/fail")]))
    assert "'fail' failed" in answer.error_message
    response = answer.infer_response
    assert (response.id, response.model_name) == ("3", "toy/fail")
    assert response.parameters[FINAL].bool_param
    assert response.parameters["code"].string_param == "INTERNAL"
    assert response.parameters["reason"].string_param == "COMPONENT_FAILED"


def test_bytes_that_are_no_request_are_told_in_band(world):
    with grpc.insecure_channel(world[0].address) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        data = [b"\xff\xff\xff", message(2).SerializeToString()]
        answers = [pb.ModelStreamInferResponse.FromString(each) for each in call(iter(data))]
    assert "not a inference.ModelInferRequest" in answers[0].error_message
    assert answers[-1].infer_response.outputs[0].name == "total"


def test_random_bytes_never_break_a_stream(world):
    rng = np.random.default_rng(1)
    good = message(1, "toy/count", parameters={"times": pb.InferParameter(int64_param=2)}).SerializeToString()
    sends = []
    for _ in range(200):
        data = bytearray(good)
        for place in rng.integers(0, len(data), rng.integers(1, 5)):
            data[place] = rng.integers(0, 256)
        sends.append(bytes(data))
    codes = defaultdict(int)
    with grpc.insecure_channel(world[0].address) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        for start in range(0, len(sends), 10):
            for each in call(iter(sends[start : start + 10]), timeout=20):
                answer = pb.ModelStreamInferResponse.FromString(each)
                if answer.error_message:
                    codes[answer.infer_response.parameters["code"].string_param] += 1
                elif answer.infer_response.parameters[FINAL].bool_param:
                    codes["OK"] += 1
    assert sum(codes.values()) == 200
    assert set(codes) <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}


def test_many_requests_on_many_streams(world):
    def ask(first: int, found: dict[int, list[float]]) -> None:
        with grpc.insecure_channel(world[0].address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)  # Triton's own
            for answer in stub.ModelStreamInfer(iter([message(first + n) for n in range(5)]), timeout=20):
                assert not answer.error_message
                if answer.infer_response.parameters[FINAL].bool_param:
                    raw = answer.infer_response.raw_output_contents[1]
                    found[int(answer.infer_response.id)] = np.frombuffer(raw, np.float32).tolist()

    found: dict[int, list[float]] = {}
    threads = [threading.Thread(target=ask, args=(10 * n, found)) for n in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert found == {n: [n + 1.0, n + 2.0, n + 3.0] for first in range(0, 50, 10) for n in range(first, first + 5)}


def test_a_client_that_goes_takes_its_walks_back(world, model):
    with triton.InferenceServerClient(world[0].address) as client:
        started(client)
        for _ in range(3):
            client.async_stream_infer("toy/wait", [sent("x", ROW)])
        assert until(lambda: len(world[1]._open) == 3)
        client.stop_stream(cancel_requests=True)
    assert until(lambda: not world[1]._open)
    rounds = model.gate.rounds
    time.sleep(0.1)
    assert model.gate.rounds == rounds


def test_a_timeout_of_its_own(world, client):
    came = started(client)
    client.async_stream_infer("toy/wait", [sent("x", ROW)], parameters={"stream": ""}, timeout=100_000)
    assert "deadline" in str(came.get(timeout=5))
    client.stop_stream()
    assert until(lambda: not world[1]._open)


def test_as_many_walks_and_streams_as_allowed():
    model = toy()
    with (
        served(model, limits=ServerLimits(max_concurrent_walks=1)) as (server, runtime),
        triton.InferenceServerClient(server.address) as client,
        triton.InferenceServerClient(server.address) as other,
    ):
        came = started(client)
        client.async_stream_infer("toy/wait", [sent("x", ROW)], parameters={"stream": ""})
        assert until(lambda: len(runtime._open) == 1)
        client.async_stream_infer("toy", [sent("x", ROW)])
        assert "max_concurrent_walks" in str(came.get(timeout=5))
        refused = started(other)
        assert "streams are open" in str(refused.get(timeout=5))
        assert other.is_server_ready()
        other.stop_stream()
        client.stop_stream(cancel_requests=True)
        assert until(lambda: not runtime._open)


def test_an_answer_that_is_too_long_fails_alone():
    model = toy()
    with (
        served(model, limits=ServerLimits(max_message_bytes=2000)) as (server, _),
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        extra = {"stream": pb.InferParameter(string_param=""), "times": pb.InferParameter(int64_param=600)}
        answers = list(stub.ModelStreamInfer(iter([message(1, parameters=extra), message(2, "toy")])))
    assert sorted(bool(each.error_message) for each in answers) == [False, True]
    assert any("max_message_bytes is 2000" in each.error_message for each in answers)


def test_stopping_ends_idle_streams_at_once_and_lets_walks_end():
    model = toy()
    with (
        served(model) as (server, runtime),
        triton.InferenceServerClient(server.address) as client,
        triton.InferenceServerClient(server.address) as busy,
    ):
        started(client)
        came = started(busy)
        busy.async_stream_infer("toy/wait", [sent("x", ROW)], parameters={"stream": ""})
        assert until(lambda: len(runtime._open) == 1)
        stopping = threading.Thread(target=server.stop, args=(20,))
        began = time.monotonic()
        stopping.start()
        time.sleep(0.1)
        assert stopping.is_alive()  # for the walk
        model.gate.open.set()
        stopping.join(10)
        assert time.monotonic() - began < 8
        assert came.get(timeout=5).as_numpy("x").tolist() == ROW.tolist()
