import pytest
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from mstar_plan.models.layers.shared_attention import attend, can_share

R, S, HEADS, T, P, Z = 3, 5, 2, 9, 7, 8


def problem(dtype=torch.float32):
    torch.manual_seed(0)
    queries = torch.randn(R, S, HEADS, Z).to(dtype)
    keys, values = (torch.randn(R, HEADS, T, Z).to(dtype) for _ in range(2))
    shared = tuple(torch.randn(HEADS, P, Z).to(dtype) for _ in range(2))
    return queries, keys, values, shared


def expected(queries, keys, values, shared):
    if shared is not None:
        keys, values = (
            torch.cat([each.expand(R, -1, -1, -1), own], 2) for each, own in zip(shared, (keys, values), strict=True)
        )
    y = functional.scaled_dot_product_attention(queries.double().transpose(1, 2), keys.double(), values.double())
    return y.transpose(1, 2)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("sharing", [False, True])
def test_it_is_attention_over_both_sets(dtype, tolerance, sharing):
    queries, keys, values, shared = problem(dtype)
    common = shared if sharing else None
    found = attend(queries, keys, values, common)
    assert found.shape == (R, S, HEADS, Z)
    assert found.dtype == dtype
    assert (found.double() - expected(queries, keys, values, common)).abs().max() < tolerance


def test_keys_may_be_a_window_of_a_longer_buffer():
    queries, keys, values, _ = problem()
    buffer = torch.full((2, R, HEADS, 2 * T, Z), torch.nan)
    buffer[0, :, :, :T], buffer[1, :, :, :T] = keys, values
    found = attend(queries, buffer[0, :, :, :T], buffer[1, :, :, :T], None)
    assert (found.double() - expected(queries, keys, values, None)).abs().max() < 1e-6


@pytest.mark.skipif(not can_share(torch.device("cpu")), reason="this build of torch has no fused attention on the CPU")
@pytest.mark.parametrize("sharing", [False, True])
def test_the_slow_composite_is_never_used(sharing):
    queries, keys, values, shared = problem()
    with profile(activities=[ProfilerActivity.CPU]) as record:
        attend(queries, keys, values, shared if sharing else None)
    names = {event.key for event in record.key_averages()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert not any("math" in name or "softmax" in name for name in names)
