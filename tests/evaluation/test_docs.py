"""The example of docs/evaluation.md runs, and its table names the fields of report.json."""

import re
from pathlib import Path

import pytest

from mstar_plan.evaluation.report_data import report_json

TEXT = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()


@pytest.mark.render
def test_the_example_runs(capsys):
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL).group(1)
    exec(compile(code, "docs/evaluation.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[0.0, 0.65")


def test_every_field_is_documented(report):
    missing = [name for name in report_json(report()) if f"`{name}`" not in TEXT and f'"{name}"' not in TEXT]
    assert missing == []
