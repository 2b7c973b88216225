"""`mstar-plan doctor`: what this machine has, and the cure for what it lacks."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mstar_plan.doctor import Verdict, examine

COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red"}


def doctor() -> int:
    """Prints the findings.

    Returns:
        Exit code: 1 if something essential does not work, else 0.
    """
    findings = examine()
    table = Table.grid(padding=(0, 2))
    for each in findings:
        cure = f"cure: {each.cure}" if each.cure else ""
        table.add_row(Text(each.verdict.value, COLOURS[each.verdict]), each.name, Text(f"{each.found}\n{cure}".strip()))
    console = Console()
    console.print(table)
    problems = [each.name for each in findings if each.verdict is Verdict.PROBLEM]
    if problems:
        console.print(f"[red]not ready:[/] {', '.join(problems)}")
        return 1
    console.print("ready")
    return 0
