"""Live parity with transformers' VJEPA2Model, on weights that it draws itself; nothing is downloaded."""

from __future__ import annotations

import warnings

import pytest
import torch

from mstar_plan.models.vjepa2.checkpoint import load_encoder, load_masked_predictor, open_checkpoint

with warnings.catch_warnings(action="ignore"):
    transformers = pytest.importorskip("transformers", minversion="4.53")

SIZES = [
    {"num_attention_heads": 2, "hidden_size": 40, "mlp_ratio": 4.0, "qkv_bias": True, "tubelet_size": 2},
    {"num_attention_heads": 3, "hidden_size": 48, "mlp_ratio": 48 / 11, "qkv_bias": False, "tubelet_size": 1},
]


@pytest.mark.parametrize("sizes", SIZES)
@torch.inference_mode()
def test_a_saved_folder_computes_the_same(tmp_path, sizes) -> None:
    torch.manual_seed(3)
    config = transformers.VJEPA2Config(
        patch_size=8,
        crop_size=32,
        frames_per_clip=4,
        num_hidden_layers=3,
        pred_hidden_size=24,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=2,
        pred_num_mask_tokens=3,
        pred_mlp_ratio=2.0,
        **sizes,
    )
    config._attn_implementation = "sdpa"
    model = transformers.VJEPA2Model(config).eval()
    for parameter in model.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)

    report = open_checkpoint(tmp_path).report
    assert (report.layout, report.kind) == ("transformers", "vjepa2")
    assert report.parameters == sum(each.numel() for each in model.parameters())
    encoder, predictor = load_encoder(tmp_path), load_masked_predictor(tmp_path)

    clip = torch.randn(2, 4, 3, 32, 32)
    tokens = 4 // sizes["tubelet_size"] * 16
    context = torch.stack([torch.randperm(tokens)[: tokens // 2].sort()[0] for _ in range(2)])
    target = torch.stack([torch.randperm(tokens)[: tokens // 3].sort()[0] for _ in range(2)])
    theirs = model(clip, context_mask=[context], target_mask=[target])
    hidden = encoder(clip.transpose(1, 2))
    torch.testing.assert_close(hidden, theirs.last_hidden_state, atol=1e-5, rtol=1e-4)
    seen = hidden.gather(1, context[..., None].expand(-1, -1, hidden.shape[-1]))
    predicted = predictor(seen, context, target)
    torch.testing.assert_close(predicted, theirs.predictor_output.last_hidden_state, atol=1e-5, rtol=1e-4)
