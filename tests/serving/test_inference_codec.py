"""Requests become checked values and answers messages, without a socket; damage of any kind is one of our errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inference_world import EVERY, toy

from mstar_plan.errors import InvalidInputError, LimitExceededError, MStarError, NotFoundError
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.inference_codec import FINAL, describe, read_request, write_response
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb
from mstar_plan.serving.served_walks import ServedWalks

LIMITS = ServerLimits()


@pytest.fixture(scope="module")
def walks() -> Iterator[ServedWalks]:
    model = toy()
    with Runtime(model.graph) as runtime:
        made = ServedWalks({"toy": model.servable}, runtime)
        made.mark("toy", None)
        yield made


def request(model: str = "toy", **parameters: object) -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name=model, id="7")
    if model in ("toy", "toy/add", "toy/count"):
        made.inputs.add(name="x", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([1, 2])
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(made.parameters[name], kind, value)
    return made


def test_a_request_is_read_with_defaults(walks):
    asked = read_request(request(scale=2, timeout=1_500_000, soft_time=2500), walks, LIMITS, streams=False)
    assert asked.values.keys() == {"x", "y", "scale", "negate"}
    assert (asked.values["x"].tolist(), asked.values["y"], asked.values["scale"]) == ([[1.0, 2.0]], None, 2)
    assert (asked.id, asked.timeout_s, asked.soft_time_s, asked.deterministic) == ("7", 1.5, 0.0025, False)
    assert (asked.outputs, asked.streams) == (("sum",), ())


def test_settings_that_mean_nothing_are_taken(walks):
    made = request(sequence_id="a", sequence_start=True, sequence_end=False, priority=3, timeout=0, deterministic=True)
    asked = read_request(made, walks, LIMITS, streams=False)
    assert (asked.timeout_s, asked.deterministic) == (None, True)
    forever = read_request(request(timeout=2**63 - 1), walks, LIMITS, streams=False)
    assert forever.timeout_s is None


def test_which_outputs_and_streams(walks):
    def wanted(*outputs: str, streams: bool = True, **parameters: object) -> tuple[object, object]:
        made = request("toy/count", **parameters)
        for name in outputs:
            made.outputs.add(name=name)
        asked = read_request(made, walks, LIMITS, streams=streams)
        return asked.outputs, asked.streams

    assert wanted() == (("total", "all"), ("said", "total"))
    assert wanted(streams=False) == (("total", "all"), ())
    assert wanted("all") == (("all",), ())
    assert wanted("said", "all", "said") == (("all",), ("said",))
    assert wanted("said") == ((), ("said",))
    assert wanted(stream="said") == (("total", "all"), ("said",))
    assert wanted(stream="") == (("total", "all"), ())
    assert wanted("all", stream="said,total") == (("all",), ("said", "total"))
    with pytest.raises(InvalidInputError, match=r"gives no 'said'.*known: all, total"):
        wanted("said", streams=False)
    with pytest.raises(InvalidInputError, match="ModelStreamInfer"):
        wanted(streams=False, stream="said")
    with pytest.raises(InvalidInputError, match="streams no 'sad'; did you mean 'said'"):
        wanted(stream="sad")


DAMAGE: dict[str, Callable[[pb.ModelInferRequest], object]] = {
    "unknown input": lambda m: m.inputs.add(name="yy", datatype="FP32", shape=[1]),
    "twice": lambda m: m.inputs.add().CopyFrom(m.inputs[0]),
    "missing": lambda m: m.ClearField("inputs"),
    "rank": lambda m: m.inputs[0].shape.append(1),
    "empty": lambda m: (m.inputs[0].ClearField("contents"), m.inputs[0].shape.__setitem__(1, 0)),
    "NaN": lambda m: m.inputs[0].contents.fp32_contents.__setitem__(0, float("nan")),
    "raw count": lambda m: m.raw_input_contents.extend([b"", b""]),
    "output": lambda m: m.outputs.add(name="smu"),
    "output parameter": lambda m: m.outputs.add(name="sum").parameters["classification"].SetInParent(),
    "parameter": lambda m: m.parameters["scael"].SetInParent(),
    "parameter twice": lambda m: m.parameters["x"].SetInParent(),
    "timeout": lambda m: setattr(m.parameters["timeout"], "int64_param", -1),
    "timeout kind": lambda m: setattr(m.parameters["timeout"], "double_param", 1.0),
    "deterministic kind": lambda m: setattr(m.parameters["deterministic"], "int64_param", 1),
    "walk kind": lambda m: m.parameters["walk"].SetInParent(),
    "version": lambda m: setattr(m, "model_version", "9"),
    "long name": lambda m: m.inputs.add(name="y" * 100_000, datatype="FP32", shape=[1]),
    "huge": lambda m: m.inputs[0].shape.__setitem__(1, 2**60),
}


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ("unknown input", InvalidInputError, "no input 'yy'; did you mean 'y'|known: negate, scale, x, y"),
        ("twice", InvalidInputError, "'x' is there twice"),
        ("missing", InvalidInputError, "needs input 'x'"),
        ("rank", InvalidInputError, "contents|shape"),
        ("empty", InvalidInputError, r"shape \[1, 0\]"),
        ("NaN", InvalidInputError, "NaN"),
        ("raw count", InvalidInputError, "1 inputs and 2 raw_input_contents"),
        ("output", InvalidInputError, "gives no 'smu'; did you mean 'sum'"),
        ("output parameter", InvalidInputError, "'classification'.*not offered"),
        ("parameter", InvalidInputError, "did you mean 'scale'"),
        ("parameter twice", InvalidInputError, "'x' is there twice"),
        ("timeout", InvalidInputError, "timeout.*-1"),
        ("timeout kind", InvalidInputError, "timeout.*send int_param|send int64_param"),
        ("deterministic kind", InvalidInputError, "send bool_param"),
        ("walk kind", InvalidInputError, "'walk' is empty"),
        ("version", NotFoundError, "version '9'"),
        ("long name", InvalidInputError, r"yyy\.\.\."),
        ("huge", LimitExceededError, "max_tensor_elements"),
    ],
)
def test_damage_is_told(walks, change, kind, words):
    made = request()
    DAMAGE[change](made)
    with pytest.raises(kind, match=words) as caught:
        read_request(made, walks, LIMITS, streams=False)
    assert len(str(caught.value)) < 500
    assert len(caught.value.field) < 100


def test_answers(walks):
    asked = read_request(request("toy/count"), walks, LIMITS, streams=True)
    part = write_response(asked, {"said": torch.tensor([3.0])}, final=False)
    assert (part.model_name, part.model_version, part.id) == ("toy/count", "1", "7")
    assert not part.parameters[FINAL].bool_param
    assert [(o.name, o.datatype, list(o.shape)) for o in part.outputs] == [("said", "FP32", [1])]
    last = write_response(asked, {"all": torch.zeros(1, 3), "total": torch.zeros(1, 2)}, final=True)
    assert last.parameters[FINAL].bool_param
    assert [len(each) for each in last.raw_output_contents] == [12, 8]
    assert FINAL not in write_response(asked, {}).parameters


def test_descriptions(walks):
    found = describe(walks.find("toy"))
    assert (found.name, list(found.versions), found.platform) == ("toy", ["1"], "mstar_walk")
    assert [(i.name, i.datatype, list(i.shape)) for i in found.inputs] == [
        ("x", "FP32", [-1, -1]),
        ("y", "FP32", [-1, -1]),
        ("scale", "FP64", [1]),
        ("negate", "BOOL", [1]),
    ]
    assert [(o.name, o.datatype) for o in found.outputs] == [("sum", "FP32")]
    expected = {"licence": "Apache-2.0", "input.x": "numbers [m]", "default.scale": "1.0", "default.y": "left out"}
    assert expected.items() <= dict(found.properties).items()
    assert "default.x" not in found.properties
    assert set(found.properties["walks"].split(",")) >= {"add", "say", "every"}
    assert describe(walks.find("toy/count")).properties["streams"] == "said,total"
    every = {i.name: i.datatype for i in describe(walks.find("toy/every")).inputs}
    assert every.keys() == set(EVERY)
    assert (every["bfloat16"], every["bool"], every["uint8"]) == ("BF16", "BOOL", "UINT8")


PARAMETERS = (
    st.builds(pb.InferParameter, int64_param=st.integers(-(2**63), 2**63 - 1))
    | st.builds(pb.InferParameter, string_param=st.text(max_size=5))
    | st.builds(pb.InferParameter, double_param=st.floats())
)
NAMES = st.sampled_from(["x", "y", "scale", "negate", "timeout", "walk", "stream", "sum", ""]) | st.text(max_size=5)
INPUTS = st.builds(
    pb.ModelInferRequest.InferInputTensor,
    name=NAMES,
    datatype=st.sampled_from(["FP32", "BYTES", "INT8", "BOOL", "UINT64", "FP16", ""]) | st.text(max_size=4),
    shape=st.lists(st.integers(-1, 3) | st.integers(-(2**63), 2**63 - 1), max_size=4),
    contents=st.none() | st.builds(
        pb.InferTensorContents,
        fp32_contents=st.lists(st.floats(width=32), max_size=6),
        int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2),
        bytes_contents=st.lists(st.binary(max_size=4), max_size=2),
    ),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["toy", "toy/say", "toy/every", "toy/count"]),
    st.lists(INPUTS, max_size=3),
    st.lists(st.binary(max_size=16), max_size=3),
    st.dictionaries(NAMES, PARAMETERS, max_size=3),
    st.booleans(),
)
def test_random_requests_are_read_or_refused(walks, model, inputs, raw, parameters, streams):
    made = pb.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=raw)
    for name, value in parameters.items():
        made.parameters[name].CopyFrom(value)
    try:
        read_request(made, walks, LIMITS, streams=streams)
    except MStarError as error:
        told = error
    else:
        return
    assert isinstance(told, InvalidInputError | LimitExceededError | NotFoundError), told
