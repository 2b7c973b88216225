"""Files and words become one dataclass: choices, precedence, tunes, and an error for every slip."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest

from mstar_plan.config import Section, load, narrow, options, read_option
from mstar_plan.config.loading import SHIPPED
from mstar_plan.errors import ConfigError


@dataclass(frozen=True)
class Search:
    samples: int = 1
    elites: int = 1
    std: float = 0.1


@dataclass(frozen=True)
class Flow:
    steps: int = 10


@dataclass(frozen=True)
class Task:
    model: str = ""


@dataclass(frozen=True)
class Job:
    planner: Annotated[Any, Section("planner", {"cem": f"{__name__}:Search", "flow": f"{__name__}:Flow"})]
    task: Annotated[Task, Section("task")]
    seed: int = 0
    out: str = "runs"
    sizes: tuple[int, ...] = ()
    search: Search = field(default_factory=Search)


FILES = {
    "job.yaml": "planner: cem\ntask: push\nseed: 3\n",
    "planner/cem.yaml": "samples: 96\nelites: 10\n",
    "planner/flow.yaml": "steps: 4\n",
    "planner/odd.yaml": "steps: 4\n",
    "task/push.yaml": "model: push\ntune:\n  planner/cem: {samples: 128}\n",
    "task/reach.yaml": "model: reach\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a small config folder in the place of the shipped one."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("mstar_plan.config.loading.SHIPPED", tmp_path)
    return tmp_path


def job(*words: str) -> Job:
    return load("job", words, Job)


def test_layers_go_file_tune_words() -> None:
    assert job() == Job(Search(samples=128, elites=10, std=0.1), Task("push"), seed=3)
    assert job("task=reach").planner == Search(samples=96, elites=10)
    assert job("planner.samples=7", "seed=9") == Job(Search(samples=7, elites=10), Task("push"), seed=9)


def test_a_choice_changes_the_type_and_drops_the_tune_of_the_other() -> None:
    assert job("planner=flow").planner == Flow(4)
    assert job("planner.steps=2", "planner=flow").planner == Flow(2)


def test_a_user_file_stands_between(here: Path) -> None:
    (here / "mine.yaml").write_text("planner: {use: flow, steps: 8}\nseed: 5\nout: mine\n")
    assert job(f"config={here}/mine.yaml", "seed=6") == Job(Flow(8), Task("push"), seed=6, out="mine")
    assert job(f"config={here}/mine.yaml", "planner=cem", "planner.samples=2").planner == Search(2, 10)


def test_a_user_folder_is_searched_first(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("own")
    (folder / "planner").mkdir()
    (folder / "planner" / "cem.yaml").write_text("samples: 33\n")
    assert job(f"config_dir={folder}", "task=reach").planner == Search(33, 1)


def test_values_are_yaml() -> None:
    assert job("sizes=[1, 2]", "search.std=1e-3", "out='7'") == Job(
        Search(128, 10), Task("push"), 3, "7", (1, 2), Search(std=0.001)
    )


def test_keys_may_point_at_each_other() -> None:
    assert job("seed=4", "search.samples=${seed}").search.samples == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sead=1"], r"no key 'sead'; did you mean 'seed'\?.*conf/job.yaml"),
        (["planner.sample=1"], r"planner has no key 'sample'; did you mean 'samples'\?.*conf/planner/cem.yaml"),
        (["planner=flow", "planner.samples=1"], r"planner has no key 'samples'.*conf/planner/flow.yaml"),
        (["planner=cemm"], r"planner is 'cemm'; did you mean 'cem'\?.*each is a file in conf/planner/"),
        (["planner=odd"], r"planner is 'odd'; known: cem, flow"),
        (["planner=../job"], r"planner is '../job'"),
        (["planner=3"], r"planner is '?3"),
        (["planner.samples=many"], r"planner.samples is 'many' \(str\); it needs a whole number.*planner/cem.yaml"),
        (["seed"], r"'seed' is not a key=value word"),
        (["=1"], r"'=1' is not a key=value word"),
        (["seed=1", "seed=2"], r"seed is given twice, as '1' and '2'"),
        (["sizes=[1,"], r"sizes is '\[1,', which is not YAML"),
        (["seed="], r"seed is \(null\)"),
        (["seed.x=1"], r"seed is \{'x': 1\}"),
        (["out=${oc.env:HOME}"], r"\$\{oc.env:\.\.\.\} is an OmegaConf resolver"),
        (["out=${nothing}"], r"nothing"),
        (["config=absent.yaml"], r"config file absent.yaml cannot be read: No such file"),
        (["config_dir=absent"], r"config_dir is 'absent', which is not a folder"),
    ],
)
def test_every_slip_has_a_message(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        job(*words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("- 1\n- 2\n", "not a list"), ("a: [1\n", "is not YAML"), ("seed: 1\nseed: 2\n", "is not YAML")],
)
def test_a_broken_file_is_named(here: Path, text: str, message: str) -> None:
    (here / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        job(f"config={here}/bad.yaml")


def test_options_and_their_content() -> None:
    assert options("planner", (Path("absent"),)) == []
    assert read_option("task", "push") == {"model": "push"}
    with pytest.raises(ConfigError, match="task is 'pusch'; did you mean 'push'"):
        read_option("task", "pusch")


def test_the_shipped_folder_has_every_task() -> None:
    assert {"reach", "wall", "push"} <= set(options("task", (SHIPPED,)))


@dataclass(frozen=True, kw_only=True)
class Shared:
    planner: Annotated[Any, Section("planner", {"cem": f"{__name__}:Search", "flow": f"{__name__}:Flow"})]
    threads: int = 1


def test_a_part_of_the_words_fits_another_command(here: Path) -> None:
    (here / "mine.yaml").write_text("planner: {use: flow, steps: 8}\nseed: 5\nthreads: 3\n")
    words = ["planner.steps=2", "seed=1", f"config={here}/mine.yaml", "out=x", f"config_dir={here}"]
    kept = narrow(words, Shared, here)
    assert kept == ["planner.steps=2", f"config_dir={here}", f"config={here}/narrowed.yaml"]
    assert load("shared", kept, Shared) == Shared(planner=Flow(2), threads=3)
    assert narrow(["seed=1"], Shared, here) == []
