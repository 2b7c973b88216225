"""What the terminal shows."""

import io

from rich.console import Console

from mstar_plan.evaluation.console import LiveProgress, controller_label, summary_table


def _text(renderable, width=110):
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()


def test_the_table_has_success_interval_distance_times_and_rate(result, report):
    text = _text(summary_table([report(result(), result(seed=1, distances=(0.3, 0.25, 0.2)))]))
    for part in ("line", "cem (grpc)", "1/2", "50%", "9-91%", "105.0 mm", "15.0/20.0/20.0", "4.0 Hz"):
        assert part in text


def test_it_fits_a_terminal_of_eighty_columns(result, report):
    slow = result(plan_ms=(123.4,) * 2)
    lines = _text(summary_table([report(slow, env="reach"), report(result(), env="wall")]), width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any("reach" in line and "cem (grpc)" in line and "123.4/123.4/123.4" in line for line in lines)


def test_late_steps_show_in_real_time(result, report):
    assert "1 late" in _text(summary_table([report(result(late=1), real_time=True)]))


def test_labels(report):
    assert controller_label(report()) == "cem (grpc)"
    assert controller_label(report(real_time=True)) == "cem (grpc, real time)"
    assert controller_label(report(controller="random", planner="")) == "random"


def test_progress_shows_running_success(result):
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with LiveProgress(console) as progress:
        progress.begin("line", 2)
        progress.advance(result())
        progress.advance(result(seed=1, distances=(0.3, 0.25, 0.2)))
        progress.end()
        progress.begin("other", 1)
        progress.advance(result())
        progress.end()
    text = console.file.getvalue()
    assert "solved 1/2 = 50%" in text
    assert "plan 15.0 ms" in text
    assert "solved 1/1 = 100%" in text
