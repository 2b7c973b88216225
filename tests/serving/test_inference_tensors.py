"""Single values of the inference protocol: typed and raw contents agree, and what does not fit its port is refused."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import torch

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError
from mstar_plan.families.face import DTYPES, Port
from mstar_plan.serving.inference_tensors import DATATYPES, datatype_of, read_parameter, read_value, write_value
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb

LIMITS = ServerLimits(max_tensor_elements=100)
Input = pb.ModelInferRequest.InferInputTensor
Contents = pb.InferTensorContents


def tensor(datatype: str, shape: list[int], **contents) -> Input:
    return Input(name="x", datatype=datatype, shape=shape, contents=Contents(**contents) if contents else None)


def raw(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


@pytest.mark.parametrize("dtype", DTYPES)
def test_typed_and_raw_contents_agree(dtype):
    datatype = datatype_of(Port(dtype=dtype))[0]
    values = torch.tensor([[0, 1, 1]], dtype=DTYPES[dtype])
    port = Port(dtype=dtype, shape=(None, 3))
    sent = write_value(port, "x", values)
    assert sent[:2] == (datatype, [1, 3])
    assert torch.equal(read_value(port, tensor(datatype, [1, 3]), sent[2], LIMITS), values)
    field = DATATYPES[datatype][1]
    if not field:
        with pytest.raises(InvalidInputError, match="raw_input_contents"):
            read_value(port, tensor(datatype, [1, 3]), None, LIMITS)
        return
    typed = tensor(datatype, [1, 3], **{field: values.flatten().tolist()})
    back = read_value(port, typed, None, LIMITS)
    assert (back.dtype, back.tolist()) == (values.dtype, values.tolist())


def test_shapes_of_ports():
    assert datatype_of(Port(dtype="bfloat16", shape=(None, 3, None))) == ("BF16", [-1, 3, -1])
    kinds = {kind: datatype_of(Port(kind)) for kind in ("text", "json", "integer", "number", "flag")}
    assert kinds == {
        "text": ("BYTES", [1]),
        "json": ("BYTES", [1]),
        "integer": ("INT64", [1]),
        "number": ("FP64", [1]),
        "flag": ("BOOL", [1]),
    }


@pytest.mark.parametrize(
    ("kind", "sent", "data", "value"),
    [
        ("text", tensor("BYTES", [1], bytes_contents=["hé".encode()]), None, "hé"),
        ("text", tensor("BYTES", [1]), raw(b""), ""),
        ("json", tensor("BYTES", [1]), raw(b'{"a": [1, null]}'), {"a": [1, None]}),
        ("integer", tensor("INT64", [1], int64_contents=[-(2**63)]), None, -(2**63)),
        ("integer", tensor("UINT8", [], uint_contents=[7]), None, 7),
        ("integer", tensor("UINT64", [1, 1]), struct.pack("<Q", 2**63 - 1), 2**63 - 1),
        ("number", tensor("FP32", [1], fp32_contents=[0.5]), None, 0.5),
        ("number", tensor("FP16", [1]), np.float16(1.5).tobytes(), 1.5),
        ("number", tensor("INT16", [1], int_contents=[-3]), None, -3),
        ("flag", tensor("BOOL", [1], bool_contents=[True]), None, True),
    ],
)
def test_single_values(kind, sent, data, value):
    found = read_value(Port(kind), sent, data, LIMITS)
    assert (type(found), found) == (type(value), value)


ROW = Port(dtype="int8", shape=(None,))


@pytest.mark.parametrize(
    ("port", "sent", "data", "words"),
    [
        (ROW, tensor("INT8", [2], int_contents=[1]), None, "1 elements in int_contents.*needs 2"),
        (ROW, tensor("INT8", [1], int_contents=[128]), None, "128.*INT8 goes from -128 to 127"),
        (ROW, tensor("INT8", [1], int64_contents=[1]), None, "int64_contents; send int_contents"),
        (ROW, tensor("INT8", [1], int_contents=[1]), b"1", "contents and raw"),
        (ROW, tensor("INT8", [2]), b"1", "truncated"),
        (ROW, tensor("FP32", [1]), b"1234", "is FP32; send INT8"),
        (ROW, tensor("INT9", [1]), b"1", "did you mean 'INT8'"),
        (ROW, tensor("BYTES", [1]), raw(b"1"), "is BYTES; send INT8"),
        (ROW, tensor("", [1]), b"1", "datatype ''"),
        (Port("text"), tensor("BYTES", [2], bytes_contents=[b"a", b"b"]), None, r"send shape \[1\]"),
        (Port("text"), tensor("BYTES", [1], bytes_contents=[b"\xff"]), None, "UTF-8"),
        (Port("text"), tensor("BYTES", [1]), b"\x05\x00", "its length in 4 bytes"),
        (Port("text"), tensor("BYTES", [1]), raw(b"abc")[:-1], "its length in 4 bytes"),
        (Port("text"), tensor("UINT8", [1]), b"a", "is UINT8; send BYTES"),
        (Port("json"), tensor("BYTES", [1]), raw(b"{"), "no JSON"),
        (Port("json"), tensor("BYTES", [1]), raw(b"[NaN]"), "NaN"),
        (Port("json"), tensor("BYTES", [1]), raw(b"[" * 100_000), "too deep"),
        (Port("json"), tensor("BYTES", [1]), raw(b"9" * 5000), "no JSON"),
        (Port("integer"), tensor("FP64", [1], fp64_contents=[1.0]), None, "send INT64"),
        (Port("integer"), tensor("UINT64", [1], uint64_contents=[2**63]), None, "64 bits"),
        (Port("integer"), tensor("INT64", [0]), b"", r"send shape \[1\]"),
        (Port("number"), tensor("FP64", [1], fp64_contents=[float("nan")]), None, "finite"),
        (Port("flag"), tensor("UINT8", [1], uint_contents=[1]), None, "send BOOL"),
        (Port("flag"), tensor("BOOL", [1]), b"\x02", "neither"),
    ],
)
def test_what_does_not_fit_is_told(port, sent, data, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        read_value(port, sent, data, LIMITS)
    assert caught.value.field == "x"


@pytest.mark.parametrize(
    ("port", "sent", "data"),
    [
        (ROW, tensor("INT8", [2**40, 2**40]), b""),
        (ROW, tensor("INT8", [101], int_contents=[1]), None),
        (Port("text", most=2), tensor("BYTES", [1]), raw(b"123456789")),
        (Port("json", most=4), tensor("BYTES", [1]), raw(b"[1, 2]")),
    ],
)
def test_what_is_too_large(port, sent, data):
    with pytest.raises(LimitExceededError):
        read_value(port, sent, data, LIMITS)


def test_shared_memory_is_refused():
    sent = tensor("INT8", [1])
    sent.parameters["shared_memory_region"].string_param = "/dev/shm/x"
    with pytest.raises(InvalidInputError, match=r"shared_memory_region.*not offered"):
        read_value(ROW, sent, b"1", LIMITS)


@pytest.mark.parametrize(
    ("kind", "sent", "value"),
    [
        ("integer", pb.InferParameter(int64_param=-3), -3),
        ("integer", pb.InferParameter(uint64_param=3), 3),
        ("number", pb.InferParameter(double_param=0.5), 0.5),
        ("number", pb.InferParameter(int64_param=2), 2),
        ("flag", pb.InferParameter(bool_param=False), False),
        ("text", pb.InferParameter(string_param=""), ""),
        ("json", pb.InferParameter(string_param="[1]"), [1]),
    ],
)
def test_parameters(kind, sent, value):
    found = read_parameter(Port(kind), "x", sent)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("kind", "sent", "words"),
    [
        ("tensor", pb.InferParameter(int64_param=1), "send it as an input"),
        ("integer", pb.InferParameter(), "is empty"),
        ("integer", pb.InferParameter(bool_param=True), "send int64_param"),
        ("integer", pb.InferParameter(double_param=1.0), "send int64_param"),
        ("integer", pb.InferParameter(uint64_param=2**63), "64 bits"),
        ("number", pb.InferParameter(double_param=float("inf")), "finite"),
        ("number", pb.InferParameter(bool_param=True), "send double_param"),
        ("flag", pb.InferParameter(int64_param=1), "send bool_param"),
        ("text", pb.InferParameter(int64_param=1), "send string_param"),
        ("json", pb.InferParameter(string_param="Infinity"), "no JSON"),
    ],
)
def test_parameters_that_do_not_fit(kind, sent, words):
    with pytest.raises(InvalidInputError, match=words):
        read_parameter(Port(kind), "x", sent)


@pytest.mark.parametrize(
    ("kind", "value", "sent"),
    [
        ("text", "hé", ("BYTES", [1], raw("hé".encode()))),
        ("integer", -2, ("INT64", [1], struct.pack("<q", -2))),
        ("number", 0.25, ("FP64", [1], struct.pack("<d", 0.25))),
        ("flag", True, ("BOOL", [1], b"\x01")),
    ],
)
def test_plain_outputs(kind, value, sent):
    assert write_value(Port(kind), "y", value) == sent


def test_json_outputs():
    _, _, data = write_value(Port("json"), "y", {"é": [1, None]})
    assert json.loads(data[4:]) == {"é": [1, None]}
    assert "é".encode() in data


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("tensor", "text"),
        ("text", 1),
        ("json", float("nan")),
        ("json", object()),
        ("flag", 1),
        ("integer", 2**63),
        ("number", "1"),
    ],
)
def test_outputs_that_are_not_what_their_face_says(kind, value):
    with pytest.raises(ComponentError, match="'y'"):
        write_value(Port(kind), "y", value)
