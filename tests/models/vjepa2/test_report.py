"""The report of loading, as text and as an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.report import LoadReport

REPORT = LoadReport("b.pt", "bundle", "vjepa2_ac", "tiny + tiny", "float32", 1_234_567, 4_938_268, ignored=("epoch",))
MANY = tuple(f"encoder.blocks.{i}.norm1.bias" for i in range(9))


def test_what_fits_is_told_in_lines():
    REPORT.check(strict=True)
    assert REPORT.lines() == [
        "b.pt: vjepa2_ac, bundle layout, nearest to tiny + tiny",
        "1,234,567 parameters, 4.9 MB as float32",
        "ignored: epoch",
    ]


def test_what_does_not_fit_is_counted_and_the_first_are_named():
    report = replace(REPORT, missing=MANY, misshaped=("encoder.norm.bias: [3], needed [4]",))
    with pytest.raises(WeightsError) as caught:
        report.check(strict=False)
    text = str(caught.value)
    assert "9 missing: encoder.blocks.0.norm1.bias" in text
    assert "encoder.blocks.3.norm1.bias and 5 more" in text
    assert "1 misshaped: encoder.norm.bias: [3], needed [4]" in text
    assert "nearest named configuration: tiny + tiny" in text
    assert caught.value.field == "encoder.blocks.0.norm1.bias"


def test_unexpected_tensors_are_an_error_only_where_it_is_strict():
    report = replace(REPORT, unexpected=("encoder.cls_token",))
    report.check(strict=False)
    with pytest.raises(WeightsError, match="strict=false"):
        report.check(strict=True)
