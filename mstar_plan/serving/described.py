"""The pool that reflection reads: the descriptions of all services, those that are kept in pools of their own, too."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool


def pool_of(files: Iterable[FileDescriptor]) -> DescriptorPool:
    """Returns a pool with these files and all that they import."""
    pool = DescriptorPool()
    added: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name not in added:
            added.add(file.name)
            for needed in file.dependencies:
                add(needed)
            pool.AddSerializedFile(file.serialized_pb)

    for file in files:
        add(file)
    return pool
