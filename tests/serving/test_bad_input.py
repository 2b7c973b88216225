"""Every bad input over a real socket: the right status with details, no traceback, and a good request right after."""

from __future__ import annotations

import io
from collections.abc import Callable

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from PIL import Image as Pillow

from mstar_plan.serving.codec import encode_image, encode_tensor
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb

Damage = Callable[[pb.PlanRequest], None]
Code = grpc.StatusCode


def image(message: pb.PlanRequest) -> pb.Image:
    return message.observation.images[0]


def replaced(array: np.ndarray) -> Damage:
    return lambda m: image(m).raw.CopyFrom(encode_tensor(array))


def truncated(message: pb.PlanRequest) -> None:
    image(message).raw.data = image(message).raw.data[:-7]


def corrupt_png(message: pb.PlanRequest) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encode_image(frame, "png").png
    image(message).png = data[: len(data) // 2]


def bomb(message: pb.PlanRequest) -> None:
    buffer = io.BytesIO()
    Pillow.new("RGB", (4000, 4000)).save(buffer, "PNG")
    image(message).png = buffer.getvalue()


def nan_state(message: pb.PlanRequest) -> None:
    message.observation.state.add().CopyFrom(
        pb.Tensor(name="q", dtype=pb.DTYPE_FLOAT32, shape=[1], data=np.float32(np.nan).tobytes())
    )


CASES: dict[str, tuple[Damage, Code, str, str]] = {
    "wrong shape": (replaced(np.zeros((64, 64), np.uint8)), Code.INVALID_ARGUMENT, "INVALID_INPUT", "shape"),
    "wrong dtype": (replaced(np.zeros((64, 64, 3), np.float32)), Code.INVALID_ARGUMENT, "INVALID_INPUT", "uint8"),
    "wrong size": (replaced(np.zeros((32, 48, 3), np.uint8)), Code.INVALID_ARGUMENT, "INVALID_INPUT", "64x64"),
    "NaN": (nan_state, Code.INVALID_ARGUMENT, "INVALID_INPUT", "NaN"),
    "truncated tensor": (truncated, Code.INVALID_ARGUMENT, "INVALID_INPUT", "truncated"),
    "corrupt image": (corrupt_png, Code.INVALID_ARGUMENT, "INVALID_INPUT", "truncated"),
    "no image": (lambda m: m.observation.ClearField("images"), Code.INVALID_ARGUMENT, "INVALID_INPUT", "no images"),
    "decompression bomb": (bomb, Code.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", "max_image_pixels"),
    "goal missing": (lambda m: m.ClearField("goal"), Code.INVALID_ARGUMENT, "INVALID_INPUT", "goal is missing"),
    "goal state": (
        lambda m: m.goal.state.CopyFrom(encode_tensor(np.zeros(2, np.float32))),
        Code.INVALID_ARGUMENT,
        "INVALID_INPUT",
        "goal.frame or goal.latent",
    ),
    "unknown model": (lambda m: setattr(m, "model", "tpy"), Code.NOT_FOUND, "NOT_FOUND", "did you mean 'toy'"),
    "horizon": (lambda m: setattr(m, "horizon", 13), Code.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", "horizon is 13"),
    "samples": (
        lambda m: setattr(m.budget, "samples", 257),
        Code.RESOURCE_EXHAUSTED,
        "LIMIT_EXCEEDED",
        "samples is 257",
    ),
    "iterations": (
        lambda m: setattr(m.budget, "iterations", 10_001),
        Code.RESOURCE_EXHAUSTED,
        "LIMIT_EXCEEDED",
        "iterations is 10001",
    ),
    "too few samples": (lambda m: setattr(m.budget, "samples", 2), Code.INVALID_ARGUMENT, "INVALID_INPUT", "samples"),
    "no horizon": (lambda m: setattr(m, "horizon", 0), Code.INVALID_ARGUMENT, "INVALID_INPUT", "horizon is 0"),
    "soft time": (
        lambda m: setattr(m.budget, "soft_time_s", -1.0),
        Code.INVALID_ARGUMENT,
        "INVALID_INPUT",
        "soft_time_s is -1",
    ),
    "soft time over the cap": (
        lambda m: setattr(m.budget, "soft_time_s", 99.0),
        Code.RESOURCE_EXHAUSTED,
        "LIMIT_EXCEEDED",
        "max_soft_time_s",
    ),
    "unknown session": (
        lambda m: (m.ClearField("goal"), setattr(m, "session_id", "no-such-session-as-this")),
        Code.NOT_FOUND,
        "NOT_FOUND",
        "session",
    ),
    "constraints": (
        lambda m: m.constraints.upper.CopyFrom(encode_tensor(np.ones(2, np.float32))),
        Code.INVALID_ARGUMENT,
        "INVALID_INPUT",
        "constraints.upper",
    ),
}


def failure_of(call: Callable[[], object]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name, stub, message):
    damage, code, reason, words = CASES[name]
    good = pb.PlanRequest.FromString(message.SerializeToString())
    damage(message)
    error = failure_of(lambda: stub.Plan(message, timeout=10))
    assert error.code() is code, error.details()
    assert words in error.details()
    assert "Traceback" not in error.details()
    assert "/" not in error.details().replace("w/o", "")  # no path of the server
    info = error_details_pb2.ErrorInfo()
    status = rpc_status.from_call(error)
    assert any(detail.Unpack(info) for detail in status.details)
    assert (info.reason, info.domain) == (reason, "plan.mstar")
    if code is Code.INVALID_ARGUMENT and "field" in info.metadata:
        bad = error_details_pb2.BadRequest()
        assert any(detail.Unpack(bad) for detail in status.details)
        assert bad.field_violations[0].field
    assert stub.Plan(good, timeout=10).status == pb.PLAN_STATUS_COMPLETE


def test_bytes_that_are_no_message(server, stub, message):
    with grpc.insecure_channel(server.address) as channel:
        raw = channel.unary_unary("/mstar.plan.v1.PlanningService/Plan")
        for data in (b"\xff\xff\xff\xff", bytes(range(256)), b"\x80\x04\x95not a pickle."):
            error = failure_of(lambda data=data: raw(data, timeout=10))
            assert error.code() is Code.INVALID_ARGUMENT
    assert stub.Plan(message, timeout=10).status == pb.PLAN_STATUS_COMPLETE


def test_a_message_over_the_limit_names_it(stub, message):
    image(message).raw.CopyFrom(encode_tensor(np.zeros((2400, 2400, 3), np.uint8)))  # 17 MB
    error = failure_of(lambda: stub.Plan(message, timeout=20))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert "16777216" in error.details()


def test_many_random_messages_never_break_the_server(stub, message):
    rng = np.random.default_rng(0)
    good = message.SerializeToString()
    for _ in range(200):
        data = bytearray(good)
        for place in rng.integers(0, min(len(data), 200), rng.integers(1, 6)):
            data[place] = rng.integers(0, 256)
        try:
            damaged = pb.PlanRequest.FromString(bytes(data))
        except Exception:  # only what parses gets this far; raw bytes have a test of their own
            continue
        damaged.budget.iterations = min(damaged.budget.iterations, 3) or 1
        answer = stub.Plan.future(damaged, timeout=10)
        assert answer.code() in (Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED), answer
    assert stub.Plan(message, timeout=10).status == pb.PLAN_STATUS_COMPLETE
