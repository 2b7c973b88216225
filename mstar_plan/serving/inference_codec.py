"""Messages of the inference protocol to walks and back: names, parameters, inputs, outputs and descriptions.

Parameters of a request: `timeout` and `soft_time` (microseconds), `deterministic`, `walk`, and `stream` (wires, comma
between them; for ModelStreamInfer). `sequence_id`, `sequence_start`, `sequence_end` and `priority` are taken and do
nothing: requests do not depend on each other, and who goes first follows from their timeouts. Every other parameter is
an input that is a single value, by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mstar_plan.errors import InvalidInputError, did_you_mean
from mstar_plan.families.face import REQUIRED, Port, WalkFace
from mstar_plan.serving.dispatch import NEVER_S
from mstar_plan.serving.inference_tensors import datatype_of, read_parameter, read_value, write_value
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb
from mstar_plan.serving.served_models import MAX_NAME, shortened
from mstar_plan.serving.served_walks import VERSION, ServedWalks, Target

PLATFORM = "mstar_walk"
FINAL = "triton_final_response"  # of every answer of a stream: whether it is the last one to its request
IGNORED = ("sequence_id", "sequence_start", "sequence_end", "priority", "triton_enable_empty_final_response")
SETTINGS = ("timeout", "soft_time", "deterministic", "walk", "stream")


@dataclass(frozen=True, eq=False)
class Asked:
    """A request that has been read and checked.

    Attributes:
        id: Of the client; comes back with every answer.
        target: Model and walk.
        values: Of the face's inputs, checked.
        timeout_s: After which it is worth nothing.
        soft_time_s: After which anytime loops end with what they have.
        deterministic: Its calls are never joined with others.
        outputs: What is wanted of the walk's outputs.
        streams: Wires that are wanted while it runs.
    """

    id: str
    target: Target
    values: Mapping[str, Any]
    timeout_s: float | None
    soft_time_s: float | None
    deterministic: bool
    outputs: tuple[str, ...]
    streams: tuple[str, ...]


def read_request(request: pb.ModelInferRequest, walks: ServedWalks, limits: ServerLimits, *, streams: bool) -> Asked:
    """Reads a request of ModelInfer, or (`streams`) of ModelStreamInfer.

    Raises:
        NotFoundError: There is no such model or walk.
        UnavailableError: The model is not ready.
        InvalidInputError: An input, output or parameter is unknown, missing, twice there, or of the wrong kind.
        LimitExceededError: One is too large.
    """
    parameters = request.parameters
    walk = _setting(parameters, "walk", str, "")
    target = walks.ready(walks.find(request.model_name, request.model_version, walk))
    face = target.face
    outputs, wires = _wanted(request, face, streams)
    return Asked(
        request.id,
        target,
        face.check(_values(request, face, limits)),
        _seconds(parameters, "timeout"),
        _seconds(parameters, "soft_time"),
        _setting(parameters, "deterministic", bool, False),
        outputs,
        wires,
    )


def write_response(asked: Asked, values: Mapping[str, Any], *, final: bool | None = None) -> pb.ModelInferResponse:
    """Returns an answer that holds these values of the walk's wires.

    Args:
        asked: The request.
        values: {wire: value as the walk gives it}.
        final: Of a stream: whether it is the last one, which holds outputs and no values of streams.

    Raises:
        ComponentError: A value is not what its face says.
    """
    response = pb.ModelInferResponse(model_name=asked.target.asked, model_version=VERSION, id=asked.id)
    if final is not None:
        response.parameters[FINAL].bool_param = final
    face = asked.target.face
    ports = face.streams if final is False else face.outputs
    for wire, value in values.items():
        datatype, shape, data = write_value(ports[wire], wire, face.present(wire, value))
        response.outputs.add(name=wire, datatype=datatype, shape=shape)
        response.raw_output_contents.append(data)
    return response


def describe(target: Target) -> pb.ModelMetadataResponse:
    """Returns what there is to know of a model and one of its walks."""
    servable, face = target.servable, target.face
    sides = {"input": face.inputs, "output": face.outputs, "stream": face.streams}
    properties = {
        "description": face.description or servable.description,
        "licence": servable.licence,
        "source": servable.source,
        "walks": ",".join(servable.faces),
        "streams": ",".join(face.streams),
        **{f"{side}.{name}": _described(port) for side, ports in sides.items() for name, port in ports.items()},
        **{f"default.{name}": _default(port) for name, port in face.inputs.items() if port.default is not REQUIRED},
    }
    return pb.ModelMetadataResponse(
        name=target.asked,
        versions=[VERSION],
        platform=PLATFORM,
        inputs=[_tensor(name, port) for name, port in face.inputs.items()],
        outputs=[_tensor(name, port) for name, port in face.outputs.items()],
        properties={name: value for name, value in properties.items() if value},
    )


def _values(request: pb.ModelInferRequest, face: WalkFace, limits: ServerLimits) -> dict[str, Any]:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        what = f"the request has {len(request.inputs)} inputs and {len(raw)} raw_input_contents"
        raise InvalidInputError(f"{what}; send one for each, or none", field="raw_input_contents")
    values: dict[str, Any] = {}
    for at, sent in enumerate(request.inputs):
        port = _port(face, sent.name, values)
        values[sent.name] = read_value(port, sent, raw[at] if raw else None, limits)
    for name, parameter in request.parameters.items():
        if name not in SETTINGS and name not in IGNORED:
            values[name] = read_parameter(_port(face, name, values), name, parameter)
    return values


def _port(face: WalkFace, name: str, before: Mapping[str, Any]) -> Port:
    if name not in face.inputs:
        what = f"walk {face.walk!r} has no input {shortened(name)!r}"
        raise InvalidInputError(f"{what}{did_you_mean(name[:MAX_NAME], face.inputs)}", field=shortened(name))
    if name in before:
        raise InvalidInputError(f"input {name!r} is there twice; send it once", field=name)
    return face.inputs[name]


def _wanted(request: pb.ModelInferRequest, face: WalkFace, streams: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The outputs and the wires of streams that a request wants; all, if it does not say."""
    offered = tuple(face.streams) if streams else ()
    for output in request.outputs:
        for key in output.parameters:
            what = f"output {shortened(output.name)!r} has the parameter {shortened(key)!r}"
            raise InvalidInputError(f"{what}, which is not offered here; leave it out", field="outputs")
    named = list(dict.fromkeys(output.name for output in request.outputs))
    _known(named, (*face.outputs, *offered), "outputs", f"walk {face.walk!r} gives no")
    outputs = tuple(name for name in face.outputs if not named or name in named)
    asked = _setting(request.parameters, "stream", str, None)
    if asked is None:
        return outputs, tuple(name for name in offered if not named or name in named)
    if asked and not streams:
        raise InvalidInputError("parameter 'stream' is for ModelStreamInfer; leave it out here", field="stream")
    wires = tuple(dict.fromkeys(wire for wire in asked.split(",") if wire))
    _known(wires, offered, "stream", f"walk {face.walk!r} streams no")
    return outputs, wires


def _known(names: Iterable[str], known: Iterable[str], field: str, what: str) -> None:
    for name in names:
        if name not in known:
            hint = did_you_mean(name[:MAX_NAME], known)
            raise InvalidInputError(f"{what} {shortened(name)!r}{hint}", field=field)


def _setting(parameters: Mapping[str, pb.InferParameter], name: str, kind: type, default: Any) -> Any:
    if name not in parameters:
        return default
    chosen = parameters[name].WhichOneof("parameter_choice")
    value = None if chosen is None else getattr(parameters[name], chosen)
    if type(value) is not kind:
        words = {str: "string_param", bool: "bool_param", int: "int64_param"}
        raise InvalidInputError(f"parameter {name!r} is {chosen or 'empty'}; send {words[kind]}", field=name)
    return value


def _seconds(parameters: Mapping[str, pb.InferParameter], name: str) -> float | None:
    microseconds: int = _setting(parameters, name, int, 0)
    if microseconds < 0:
        raise InvalidInputError(f"parameter {name!r} is {microseconds}; send microseconds, or 0 for none", field=name)
    seconds = microseconds / 1e6
    return seconds if 0 < seconds < NEVER_S else None


def _tensor(name: str, port: Port) -> pb.ModelMetadataResponse.TensorMetadata:
    datatype, shape = datatype_of(port)
    return pb.ModelMetadataResponse.TensorMetadata(name=name, datatype=datatype, shape=shape)


def _described(port: Port) -> str:
    kind = "" if port.kind == "tensor" else f" ({port.kind})"
    return f"{port.description}{f' [{port.unit}]' if port.unit else ''}{kind}".strip()


def _default(port: Port) -> str:
    if port.kind == "tensor":
        return "left out" if port.default is None else f"a tensor of shape {list(port.default.shape)}"
    return str(port.default) if port.kind != "text" else repr(port.default)
