import torch

from mstar_plan.runtime import memory


def test_the_processor_tells_what_is_free():
    free = memory.free_bytes("cpu")
    assert free is None or 0 < free < 2**50


def test_a_container_may_leave_less(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free_bytes("cpu") == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes("cpu") != 600


def test_other_devices_do_not_tell():
    assert memory.free_bytes(torch.device("meta")) is None
