"""The pool of reflection has every file that it is given, and what those import."""

from __future__ import annotations

from google.protobuf import descriptor_pool
from google.rpc import error_details_pb2, status_pb2

from mstar_plan.serving.described import pool_of
from mstar_plan.serving.proto.inference import inference_pb2


def test_files_of_several_pools_and_their_imports():
    pool = pool_of([inference_pb2.DESCRIPTOR, status_pb2.DESCRIPTOR, error_details_pb2.DESCRIPTOR])
    assert pool.FindServiceByName("inference.GRPCInferenceService").methods[0].name == "ServerLive"
    assert "Any" in pool.FindFileByName("google/protobuf/any.proto").message_types_by_name
    assert pool is not descriptor_pool.Default()


def test_a_file_given_twice_is_there_once():
    pool_of([inference_pb2.DESCRIPTOR, inference_pb2.DESCRIPTOR])
