"""Any walk over a real socket with Triton's own client: values, names, times, bounds, and damage that is told."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from inference_world import Toy, sent, served, toy, until, words
from tritonclient.utils import InferenceServerException

from mstar_plan import __version__
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb
from mstar_plan.serving.proto.inference import inference_pb2_grpc
from mstar_plan.serving.server import PlanningServer

Code = grpc.StatusCode
ROW = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def model() -> Toy:
    return toy()


@pytest.fixture(scope="module")
def world(model: Toy) -> Iterator[tuple[PlanningServer, Runtime]]:
    with served(model) as made:
        yield made


@pytest.fixture(scope="module")
def client(world: tuple[PlanningServer, Runtime]) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(world[0].address) as made:
        yield made


@pytest.fixture(scope="module")
def stub(world: tuple[PlanningServer, Runtime]) -> Iterator[inference_pb2_grpc.GRPCInferenceServiceStub]:
    with grpc.insecure_channel(world[0].address) as channel:
        yield inference_pb2_grpc.GRPCInferenceServiceStub(channel)


def refused(call) -> InferenceServerException:
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value


def idle(runtime: Runtime) -> bool:
    return until(lambda: not runtime._open)


def health_of(address: str, name: str) -> int:
    with grpc.insecure_channel(address) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status


def test_live_ready_and_described(world, client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("toy")
    assert client.is_model_ready("toy/say", "1")
    assert (client.get_server_metadata().name, client.get_server_metadata().version) == ("mstar-plan", __version__)
    assert [i.name for i in client.get_model_metadata("toy/say").inputs] == ["text", "data", "x"]
    for name in ("", "inference.GRPCInferenceService", "model/toy"):
        assert health_of(world[0].address, name) == health_pb2.HealthCheckResponse.SERVING
    assert "did you mean 'toy'" in refused(lambda: client.is_model_ready("tpy")).message()
    assert refused(lambda: client.get_model_metadata("toy/ad")).status() == "StatusCode.NOT_FOUND"


def test_inputs_parameters_and_names(client):
    answer = client.infer("toy", [sent("x", ROW), sent("y", 10 * ROW)], request_id="7", parameters={"scale": 2.0})
    assert answer.as_numpy("sum").tolist() == [[22.0, 44.0]]
    assert (answer.get_response().id, answer.get_response().model_name) == ("7", "toy")
    by_tensor = [sent("x", ROW), sent("scale", np.array([3.0])), sent("negate", np.array([True]))]
    assert client.infer("toy/add", by_tensor).as_numpy("sum").tolist() == [[-3.0, -6.0]]
    by_walk = client.infer("toy", [sent("text", words("hé"))], parameters={"walk": "say", "data": '{"a": 1}'})
    assert by_walk.as_numpy("text_out")[0].decode() == "HÉ"
    assert by_walk.as_numpy("data_out")[0] == b'{"said": "{\'a\': 1}"}'
    plain = {name: by_walk.as_numpy(name) for name in ("length", "share", "empty")}
    assert {name: (str(each.dtype), each.tolist()) for name, each in plain.items()} == {
        "length": ("int64", [2]),
        "share": ("float64", [0.25]),
        "empty": ("bool", [False]),
    }


def test_every_dtype_comes_back(client):
    arrays = {
        name: np.array([[0, 1, 1]], name)
        for name in ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    }
    inputs = [sent(name, array) for name, array in arrays.items()]
    half = triton.InferInput("bfloat16", [1, 3], "BF16")
    half._raw_content = np.array([0, 0x3F80, 0xC000], "<u2").tobytes()  # 0, 1, -2
    answer = client.infer("toy/every", [*inputs, half])
    for name, array in arrays.items():
        back = answer.as_numpy(f"{name}_out")
        assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())
    place = [o.name for o in answer.get_response().outputs].index("bfloat16_out")
    assert answer.get_response().raw_output_contents[place] == half._raw_content


def test_typed_contents(stub):
    request = pb.ModelInferRequest(model_name="toy")
    request.inputs.add(name="x", datatype="FP32", shape=[2, 1]).contents.fp32_contents.extend([3, 4])
    answer = stub.ModelInfer(request, timeout=10)
    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [3, 4]
    assert list(answer.outputs[0].shape) == [2, 1]


def test_only_the_outputs_that_are_wanted(client):
    answer = client.infer("toy/count", [sent("x", ROW)], outputs=[triton.InferRequestedOutput("all")])
    assert answer.as_numpy("all").tolist() == [[5.0, 7.0, 9.0]]
    assert answer.as_numpy("total") is None


@pytest.mark.parametrize(
    ("name", "inputs", "options", "code", "said"),
    [
        ("tpy", {"x": ROW}, {}, Code.NOT_FOUND, "did you mean 'toy'"),
        ("toy", {"xx": ROW}, {}, Code.INVALID_ARGUMENT, "no input 'xx'"),
        ("toy", {"x": ROW.astype(np.float64)}, {}, Code.INVALID_ARGUMENT, "FP64; send FP32"),
        ("toy", {"x": ROW[0]}, {}, Code.INVALID_ARGUMENT, "shape"),
        ("toy", {"x": ROW, "y": np.ones((2, 2), np.float32)}, {}, Code.INVALID_ARGUMENT, "differ in their leading"),
        ("toy", {"x": ROW * np.nan}, {}, Code.INVALID_ARGUMENT, "NaN"),
        ("toy", {}, {}, Code.INVALID_ARGUMENT, "needs input 'x'"),
        ("toy", {"x": ROW}, {"parameters": {"scael": 1.0}}, Code.INVALID_ARGUMENT, "did you mean 'scale'"),
        ("toy/count", {"x": ROW}, {"parameters": {"times": 1001}}, Code.RESOURCE_EXHAUSTED, "1001"),
        ("toy/count", {"x": ROW}, {"parameters": {"times": -1}}, Code.INVALID_ARGUMENT, "-1"),
        ("toy/fail", {"x": ROW}, {}, Code.INTERNAL, "component 'fail' failed"),
    ],
)
def test_bad_requests(client, name, inputs, options, code, said):
    error = refused(lambda: client.infer(name, [sent(key, value) for key, value in inputs.items()], **options))
    assert (error.status(), said in error.message()) == (str(code), True), error
    assert "Traceback" not in error.message()
    assert client.infer("toy", [sent("x", ROW)]).as_numpy("sum").tolist() == ROW.tolist()


def test_errors_have_details(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(pb.ModelInferRequest(model_name="toy", outputs=[{"name": "smu"}]), timeout=10)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    details = rpc_status.from_call(caught.value).details
    assert any(each.Unpack(info) for each in details)
    assert any(each.Unpack(bad) for each in details)
    assert (info.reason, bad.field_violations[0].field) == ("INVALID_INPUT", "outputs")


def test_many_clients_at_once(world):
    def ask(number: int) -> list[list[float]]:
        with triton.InferenceServerClient(world[0].address) as own:
            row = np.full((1, 2), number, np.float32)
            return [own.infer("toy/count", [sent("x", row)]).as_numpy("all")[0].tolist() for _ in range(5)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for number, answers in enumerate(pool.map(ask, range(16))):
            assert answers == [[2.0 * number + 2, 2 * number + 4, 2 * number + 6]] * 5


def test_its_own_timeout_ends_a_walk(world, client):
    began = time.monotonic()
    error = refused(lambda: client.infer("toy/wait", [sent("x", ROW)], timeout=100_000))
    assert error.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert 0.1 <= time.monotonic() - began < 2
    assert idle(world[1])


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_client_that_goes_takes_its_walk_back(world, client, model, how):
    model.gate.waiting.clear()
    if how == "deadline":
        refused(lambda: client.infer("toy/wait", [sent("x", ROW)], client_timeout=0.2))
    else:
        over = threading.Event()
        call = client.async_infer("toy/wait", [sent("x", ROW)], lambda result, error: over.set())
        assert model.gate.waiting.wait(5)
        call.cancel()
        assert over.wait(5)
    assert idle(world[1])
    rounds = model.gate.rounds
    time.sleep(0.1)
    assert model.gate.rounds == rounds


def test_what_a_walk_holds_is_given_back(world, client, model):
    for _ in range(3):  # there is one place
        assert client.infer("toy/hold", [sent("x", ROW)]).as_numpy("y").tolist() == (ROW + 1).tolist()
        assert until(lambda: not model.book)
    refused(lambda: client.infer("toy/hold", [sent("x", ROW)], parameters={"timeout_": 1}))
    model.book.add(0)
    try:
        error = refused(lambda: client.infer("toy/hold", [sent("x", ROW)]))
        assert (error.status(), "places" in error.message()) == ("StatusCode.RESOURCE_EXHAUSTED", True)
    finally:
        model.book.clear()


def test_what_is_held_is_given_back_if_the_walk_does_not_start(client, model):
    slow, two = model.servable.faces["hold"].prepare({"x": None}), [sent("x", ROW)]
    assert model.book
    slow["place"].release()
    error = refused(lambda: client.infer("toy/hold", two, timeout=1))  # over before it is prepared
    assert error.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert until(lambda: not model.book)


def test_as_many_walks_as_allowed_and_health_meanwhile():
    model = toy()
    with (
        served(model, limits=ServerLimits(max_concurrent_walks=1)) as (server, runtime),
        triton.InferenceServerClient(server.address) as client,
    ):
        call = client.async_infer("toy/wait", [sent("x", ROW)], lambda result, error: None)
        assert model.gate.waiting.wait(5)
        error = refused(lambda: client.infer("toy", [sent("x", ROW)]))
        assert error.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert "max_concurrent_walks" in error.message()
        assert client.is_server_ready()
        call.cancel()
        assert idle(runtime)
        assert until(lambda: client.infer("toy", [sent("x", ROW)]).as_numpy("sum") is not None)


def test_messages_that_are_too_long():
    model = toy()
    with (
        served(model, limits=ServerLimits(max_message_bytes=2000)) as (server, _),
        triton.InferenceServerClient(server.address) as client,
    ):
        long = sent("x", np.ones((1, 1000), np.float32))
        assert refused(lambda: client.infer("toy", [long])).status() == "StatusCode.RESOURCE_EXHAUSTED"
        error = refused(lambda: client.infer("toy/count", [sent("x", ROW)], parameters={"times": 600}))
        assert (error.status(), "the reply has" in error.message()) == ("StatusCode.RESOURCE_EXHAUSTED", True)


def test_random_bytes_never_break_the_server(world, client):
    good = triton._utils._get_inference_request(
        model_name="toy",
        inputs=[sent("x", ROW)],
        model_version="",
        request_id="1",
        outputs=[triton.InferRequestedOutput("sum")],
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=10**6,
        parameters={"scale": 1.5},
    ).SerializeToString()
    rng = np.random.default_rng(0)
    allowed = {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED}
    seen = set()
    with grpc.insecure_channel(world[0].address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(400):
            data = bytearray(good)
            for place in rng.integers(0, len(data), rng.integers(1, 6)):
                data[place] = rng.integers(0, 256)
            answer = call.future(bytes(data[: rng.integers(1, len(data) + 1)] if rng.random() < 0.2 else data))
            seen.add(answer.code())
    assert seen <= allowed
    assert len(seen) >= 3
    assert client.infer("toy", [sent("x", ROW)]).as_numpy("sum").tolist() == ROW.tolist()
