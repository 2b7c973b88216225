"""The house keeps its floors: who may import whom, no circles, no file or function over the cap."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mstar_plan"

# Room -> rooms that it may import from, itself aside (docs/architecture.md has the same table).
BELOW_ROLLOUT = {"runtime", "walks", "types", "errors"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "types": {"errors"},
    "walks": {"types", "errors"},
    "models": {"walks", "types", "errors"},
    "runtime": {"walks", "types", "errors"},
    "rollout": BELOW_ROLLOUT | {"models.world_model"},
    "families": BELOW_ROLLOUT | {"rollout", "models"},
    "config": {"types", "errors"},
    "evaluation": BELOW_ROLLOUT | {"rollout", "models"},
    "training": BELOW_ROLLOUT | {"rollout", "models"},
    "serving": BELOW_ROLLOUT | {"rollout", "families.servable", "families.abilities", "families.face"},
    "build_families": BELOW_ROLLOUT | {"families"},
    "build_policy": BELOW_ROLLOUT | {"models", "rollout", "build"},
    "build": BELOW_ROLLOUT
    | {"config", "evaluation", "training", "models", "rollout", "families", "serving", "build_families"},
}
ONLY_IN = {
    **dict.fromkeys(("grpc", "fastapi", "starlette", "uvicorn", "prometheus_client"), "serving"),
    "omegaconf": "config",
    "ray": "runtime",
}
FILE_CAP, FUNCTION_CAP = 400, 60


def sources() -> list[Path]:
    return [p for p in PACKAGE.rglob("*.py") if "proto" not in p.relative_to(PACKAGE).parts]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """Full names of all modules that a file imports, those inside functions included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            is_module = (ROOT / Path(*node.module.split("."))).is_dir()
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if is_module else {node.module}
    return found


def room(module: str) -> str:
    """The part of a dotted name that decides the floor: `mstar_plan.walks.state` stands in `walks`."""
    return module.removeprefix("mstar_plan.").split(".")[0]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_go_down(path: Path) -> None:
    here = room(module_name(path))
    allowed = MAY_IMPORT.get(here)
    if allowed is None:  # the package itself and the command line stand on top
        return
    for name in imports(path):
        assert not name.startswith("envs"), f"{path} imports {name}; environments are made by gymnasium.make"
        if not name.startswith("mstar_plan.") or name == "mstar_plan.__version__":
            continue
        inner = name.removeprefix("mstar_plan.")
        ok = room(name) == here or room(name) in allowed or any(inner.startswith(a) for a in allowed if "." in a)
        assert ok, f"{path} ({here}) imports {name}, which is not below it"


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_has_one_home(library: str) -> None:
    for path in sources():
        if any(name.split(".")[0] == library for name in imports(path)):
            assert room(module_name(path)) == ONLY_IN[library], f"{path} imports {library}"


def test_no_import_circles() -> None:
    modules = {module_name(p): p for p in sources()}
    graph = {name: {i for i in imports(path) if i in modules and i != name} for name, path in modules.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"imports form a circle: {' -> '.join((*trail, name))}"
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_environments_stand_apart() -> None:
    for path in (ROOT / "envs").rglob("*.py"):
        for name in imports(path):
            assert name.split(".")[0] not in {"mstar_plan", "torch"}, f"{path} imports {name}"


@pytest.mark.parametrize("path", [*sources(), *(ROOT / "envs").rglob("*.py")], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_small_and_documented(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= FILE_CAP, f"{path} has {text.count(chr(10))} lines"
    assert ast.get_docstring(tree), f"{path} has no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= FUNCTION_CAP, f"{path}:{node.name} has {length} lines"


def test_light_modules_do_not_import_torch() -> None:
    light = ["errors.py", "types.py", "__init__.py", "serving/client.py", "serving/codec.py"]
    for name in light:
        path = PACKAGE / name
        assert not any(i.split(".")[0] == "torch" for i in imports(path)), f"{name} imports torch"
