"""How much memory a device has left."""

from __future__ import annotations

from pathlib import Path

import torch

KIB = 1024
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: str | torch.device) -> int | None:
    """Bytes that can still be allocated on a device; None where nobody tells.

    For the CPU it is what the kernel calls available, or what a container's limit leaves, whichever is less.
    """
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    if device.type != "cpu":
        return None
    known = [number for number in (_available(), _container()) if number is not None]
    return min(known, default=None)


def _available() -> int | None:
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    for line in info.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    return None


def _container() -> int | None:
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):  # not a container, or not of this kind
        return None
