"""The .proto of the inference protocol: tags and types are those of Triton's clients, and both live in one process."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tritonclient.grpc import service_pb2 as theirs

from mstar_plan.serving.proto.inference import inference_pb2 as ours

PROTO = Path(ours.__file__).parent
NOT_THEIRS = {"properties"}  # in the specification alone


def fields(kind: Descriptor) -> dict[str, tuple[object, ...]]:
    """{name: what decides on its bytes}; of messages inside, by path."""
    found = {field.name: shape(field) for field in kind.fields}
    for inner in kind.nested_types:
        found |= {f"{inner.name}.{name}": each for name, each in fields(inner).items()}
    return {name: each for name, each in found.items() if not name.lower().startswith(tuple(NOT_THEIRS))}


def shape(field: FieldDescriptor) -> tuple[object, ...]:
    inner = field.message_type.full_name if field.message_type else ""
    choice = field.containing_oneof.name if field.containing_oneof else ""
    return field.number, field.type, field.is_repeated, inner, choice


@pytest.mark.parametrize("name", list(ours.DESCRIPTOR.message_types_by_name))
def test_messages_are_the_same_on_the_wire(name):
    mine = fields(ours.DESCRIPTOR.message_types_by_name[name])
    assert mine == {
        key: each for key, each in fields(theirs.DESCRIPTOR.message_types_by_name[name]).items() if key in mine
    }


def test_methods_are_the_same():
    mine = ours.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    other = theirs.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert mine.full_name == "inference.GRPCInferenceService"
    for method in mine.methods:
        same = other.methods_by_name[method.name]
        for side in ("input_type", "output_type"):
            assert getattr(method, side).full_name == getattr(same, side).full_name
        assert (method.client_streaming, method.server_streaming) == (same.client_streaming, same.server_streaming)


def test_properties_have_the_tag_of_the_specification():
    assert ours.ModelMetadataResponse.DESCRIPTOR.fields_by_name["properties"].number == 6


def test_stubs_are_those_of_the_proto():
    digest = hashlib.sha256((PROTO / "inference.proto").read_bytes()).hexdigest()
    generated = sorted(PROTO.glob("inference_pb2*"))
    assert len(generated) == 3
    for path in generated:
        assert digest in path.read_text().splitlines()[0], f"{path.name} is not of this .proto; run `make proto`"


def test_both_live_in_one_process():
    message = ours.ModelInferRequest(model_name="m", raw_input_contents=[b"\x00\xff"])
    message.parameters["a"].int64_param = -1
    assert theirs.ModelInferRequest.FromString(message.SerializeToString()).parameters["a"].int64_param == -1
    assert ours.DESCRIPTOR.pool is not theirs.DESCRIPTOR.pool
