"""The door of configuration: YAML files and `key=value` words go in, one frozen dataclass comes out.

The only room that knows OmegaConf. A command's dataclass is filled from, later over earlier:

1. the files of the chosen sections: `planner=cem` reads `planner/cem.yaml`,
2. the command's own file, `<command>.yaml`,
3. what a chosen section's file says under `tune` for the sections that it goes with,
4. the file of the word `config=FILE.yaml`,
5. the words of the command line.

What no layer says keeps the dataclass's own default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mstar_plan.config.typed import Place, to_dataclass
from mstar_plan.errors import ConfigError, did_you_mean

T = TypeVar("T")
Tree = dict[str, Any]

_KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_RESOLVER = re.compile(r"\$\{[^{}]*:")
_PACKAGE = Path(__file__).parents[1]
SHIPPED = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"


@dataclass(frozen=True)
class Section:
    """Marks a field that is chosen by name: `planner: Annotated[Planner, Section("planner", PLANNERS)]`.

    Attributes:
        group: Folder under the config folder whose files can be chosen.
        types: File name to "module:Class", where the files of a group fill different dataclasses; without it all
            fill the field's own type.
    """

    group: str
    types: Mapping[str, str] | None = None


def options(group: str, folders: Sequence[Path] | None = None) -> list[str]:
    """Returns the names that can be chosen for a section, sorted: the files of its folder, shipped ones by default."""
    return sorted({path.stem for folder in folders or (SHIPPED,) for path in (folder / group).glob("*.yaml")})


def load(command: str, words: Sequence[str], schema: type[T]) -> T:
    """Reads the configuration of a command.

    Args:
        command: Name of the command's own file in the config folder; it may be absent.
        words: `key=value` words: `planner=mppi` chooses a section's file, `planner.samples=64` sets a value,
            `config=FILE.yaml` adds a file, `config_dir=DIR` a folder that is searched before the shipped one.
        schema: Frozen dataclass to fill; fields marked with a `Section` are chosen by name.

    Raises:
        ConfigError: A key is unknown, a value has the wrong type or is refused by the dataclass, a word is not
            `key=value`, or a file is absent or not YAML.
    """
    own = _parse_words(words)
    folders = _folders(own.pop("config_dir", None))
    file = own.pop("config", None)
    layers = [_own_file(folders, command), _read(Path(str(file))) if file else {}, own]
    sections = _sections(schema)
    chosen = _choose(sections, layers)
    trees = {name: _read(_find(folders, sections[name].group, option, name)) for name, option in chosen.items()}
    tunes = _take_tunes(trees, {f"{sections[name].group}/{option}": name for name, option in chosen.items()})
    values = _resolve([trees, layers[0], *tunes, *layers[1:]])
    return to_dataclass(
        schema,
        values,
        Place("", f"conf/{command}.yaml"),
        sections={name: Place(name, f"conf/{sections[name].group}/{option}.yaml") for name, option in chosen.items()},
        kinds=_kinds(sections, chosen),
    )


def read_option(group: str, name: str) -> Tree:
    """Returns the content of one shipped section file as plain data, without its `tune`.

    Raises:
        ConfigError: There is no such file; the message lists those that there are.
    """
    tree = _read(_find((SHIPPED,), group, name, group))
    tree.pop("tune", None)
    return tree


def narrow(words: Sequence[str], schema: type, folder: Path) -> list[str]:
    """Returns those of a command's words that set fields of `schema` too, for a command that shares this part.

    Args:
        words: `key=value` words.
        schema: Dataclass that both commands' dataclasses extend.
        folder: Where the file of a `config=FILE.yaml` word goes, cut down to the same fields.

    Raises:
        ConfigError: As `load`, for words and files that cannot be read.
    """
    own = _parse_words(words)
    known = {each.name for each in fields(schema)} | {"config_dir"}
    kept = [word for word in words if word.partition("=")[0].split(".")[0] in known]
    if "config" not in own:
        return kept
    tree = {key: value for key, value in _read(Path(str(own["config"]))).items() if key in known}
    file = folder / "narrowed.yaml"
    OmegaConf.save(OmegaConf.create(tree), file)
    return [*kept, f"config={file}"]


def _sections(schema: type) -> dict[str, Section]:
    hints = get_type_hints(schema, include_extras=True).items()
    marks = {name: [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Section)] for name, hint in hints}
    return {name: found[0] for name, found in marks.items() if found}


def _own_file(folders: Sequence[Path], command: str) -> Tree:
    found = [folder / f"{command}.yaml" for folder in folders if (folder / f"{command}.yaml").is_file()]
    return _read(found[0]) if found else {}


def _find(folders: Sequence[Path], group: str, option: str, key: str) -> Path:
    found = options(group, folders)
    if option not in found:
        tail = did_you_mean(option, found)
        raise ConfigError(f"{key} is {option!r}{tail}; each is a file in conf/{group}/", field=key)
    return next(path for folder in folders if (path := folder / group / f"{option}.yaml").is_file())


def _choose(sections: Mapping[str, Section], layers: Sequence[Tree]) -> dict[str, str]:
    """Takes the choices out of the layers; the last one wins, and values meant for another choice go with it."""
    chosen: dict[str, str] = {}
    for depth, layer in enumerate(layers):
        for name in sections.keys() & layer.keys():
            value = layer[name]
            option = value.pop("use", None) if isinstance(value, dict) else layer.pop(name)
            if option is not None and str(option) != chosen.get(name):
                chosen[name] = str(option)
                for earlier in layers[:depth]:
                    earlier.pop(name, None)
    return chosen


def _take_tunes(trees: Mapping[str, Tree], where: Mapping[str, str]) -> list[Tree]:
    """Takes `tune` out of the sections' files; keeps of each what is meant for a section that was chosen."""
    tunes = [tree.pop("tune", {}) for tree in trees.values()]
    return [{where[key]: values for key, values in tune.items() if key in where} for tune in tunes]


def _kinds(sections: Mapping[str, Section], chosen: Mapping[str, str]) -> dict[str, type]:
    kinds: dict[str, type] = {}
    for name, option in chosen.items():
        table = sections[name].types
        if table is None:
            continue
        if option not in table:
            raise ConfigError(f"{name} is {option!r}{did_you_mean(option, table)}", field=name)
        module, _, kind = table[option].partition(":")
        kinds[name] = getattr(import_module(module), kind)
    return kinds


def _parse_words(words: Sequence[str]) -> Tree:
    seen: dict[str, str] = {}
    result: Tree = {}
    for word in sorted(words, key=lambda word: word.partition("=")[0].count(".")):  # planner=x before planner.y=1
        key, equals, value = word.partition("=")
        if not equals or not _KEY.fullmatch(key):
            raise ConfigError(f"{word!r} is not a key=value word; write for example seed=1 or planner.samples=64")
        if key in seen:
            raise ConfigError(f"{key} is given twice, as {seen[key]!r} and {value!r}; keep one", field=key)
        seen[key] = value
        try:
            quoted = f'{key}="-"' if value == "-" else word  # to YAML a lone dash would begin a list
            tree = _plain(OmegaConf.from_dotlist([quoted]))
        except (yaml.YAMLError, OmegaConfBaseException) as error:
            raise ConfigError(f"{key} is {value!r}, which is not YAML: {_first(error)}", field=key) from error
        _graft(result, tree)
    return result


def _graft(result: Tree, tree: Tree) -> None:
    """Puts one word's tree into `result`; a choice that meets values becomes their `use`."""
    for key, value in tree.items():
        before = result.get(key)
        if isinstance(value, dict) and before is not None:
            result[key] = {"use": before} if isinstance(before, str) else before
            _graft(result[key], value)
        else:
            result[key] = value


def _folders(extra: Any) -> tuple[Path, ...]:
    if extra is None:
        return (SHIPPED,)
    folder = Path(str(extra))
    if not folder.is_dir():
        raise ConfigError(f"config_dir is {str(extra)!r}, which is not a folder", field="config_dir")
    return (folder, SHIPPED)


def _read(path: Path) -> Tree:
    try:
        return _plain(OmegaConf.load(path))
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror or error}", field="config") from error
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"config file {path} is not YAML: {_first(error)}", field="config") from error


def _plain(config: Any) -> Tree:
    """Returns plain containers, interpolations unresolved. Resolvers are refused: they run code on a file's word."""
    if not isinstance(config, DictConfig):
        raise ConfigError("a config file needs key: value lines at its top, not a list", field="config")
    found = _RESOLVER.search(OmegaConf.to_yaml(config))
    if found:
        raise ConfigError(f"{found.group()}...}} is an OmegaConf resolver; only plain ${{key}} is allowed here")
    return dict(OmegaConf.to_container(config, resolve=False))  # type: ignore[arg-type]


def _resolve(trees: Sequence[Tree]) -> Tree:
    """Merges plain trees, later over earlier, and resolves `${key}`."""
    try:
        merged = OmegaConf.merge(*[OmegaConf.create(tree) for tree in trees])
        return dict(OmegaConf.to_container(merged, resolve=True))  # type: ignore[arg-type]
    except OmegaConfBaseException as error:
        raise ConfigError(f"the configuration does not fit together: {_first(error)}") from error


def _first(error: Exception) -> str:
    return " ".join(str(error).split("\n")[0].split())
