import pytest
import torch
from torch.nn import functional

from mstar_plan.models.layers.fused_linear import FusedLinear, has_fused_kernels


@pytest.fixture(params=[True, False], ids=["fused", "plain"])
def kernels(request, monkeypatch):
    if request.param and not has_fused_kernels(torch.zeros(1, 1)):
        pytest.skip("this build of torch has no fused kernels")
    if not request.param:
        monkeypatch.setattr("mstar_plan.models.layers.fused_linear.has_fused_kernels", lambda weight: False)
    return request.param


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("biased", [True, False])
@torch.inference_mode()
def test_it_is_the_plain_layer_with_what_follows_it(kernels, dtype, tolerance, biased):
    torch.manual_seed(0)
    x, weight, residual = (torch.randn(*shape).to(dtype) for shape in ((3, 7, 24), (40, 24), (3, 7, 40)))
    bias = torch.randn(40).to(dtype) if biased else None
    plain = functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    layer = FusedLinear(weight, bias)
    assert layer.fused is kernels
    scale = plain.abs().max()
    assert (layer(x).double() - plain).abs().max() < tolerance * scale
    assert (layer.plus(x, residual).double() - plain - residual.double()).abs().max() < tolerance * scale
    gelu = FusedLinear(weight, bias, "gelu")(x).double()
    assert (gelu - functional.gelu(plain)).abs().max() < tolerance * scale  # exact GELU: the tanh one is 5e-4 away


def test_other_types_of_number_have_no_fused_kernels():
    assert not has_fused_kernels(torch.zeros(2, 2, dtype=torch.float64))
    assert not has_fused_kernels(torch.zeros(2, 2, device="meta"))
