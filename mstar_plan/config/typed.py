"""Plain data from a config file becomes a frozen dataclass, or an error with key, value, expected type and file."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from mstar_plan.errors import ConfigError, InvalidInputError, did_you_mean

T = TypeVar("T")

_WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text (quote it if it looks like a number)",
    bool: "true or false",
    Path: "a path",
    type(None): "null",
}


@dataclass(frozen=True)
class Place:
    """Where a value stands.

    Attributes:
        key: Dotted key; empty for the top.
        file: File that its keys may stand in, for the error's reader.
    """

    key: str
    file: str

    def down(self, name: str) -> Place:
        """Returns the place of a value one level deeper."""
        return Place(f"{self.key}.{name}" if self.key else name, self.file)


def to_dataclass(
    kind: type[T],
    values: Any,
    place: Place,
    *,
    sections: Mapping[str, Place] | None = None,
    kinds: Mapping[str, type] | None = None,
) -> T:
    """Fills a dataclass, every value checked against its field's type; absent keys keep the field's default.

    Args:
        kind: Dataclass to fill.
        values: Mapping of plain data.
        place: Where `values` stand.
        sections: Fields whose values stand in another file.
        kinds: Fields whose type is decided outside, instead of the annotated one.

    Raises:
        ConfigError: A key is unknown or missing, a value has another type, or the dataclass refuses a value.
    """
    sections, kinds = sections or {}, kinds or {}
    what = place.key or "the configuration"
    if not isinstance(values, Mapping):
        _refuse(place, values, "key: value lines")
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind) if each.init}  # type: ignore[arg-type]
    filled: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(
                f"{what} has no key {key!r}{did_you_mean(str(key), known)}; its keys may stand in {place.file}",
                field=place.down(str(key)).key,
            )
        filled[key] = _convert(kinds.get(key, hints[key]), value, sections.get(key, place.down(key)))
    for name, each in known.items():
        if name not in filled and each.default is MISSING and each.default_factory is MISSING:
            raise ConfigError(
                f"{what} needs a value for {name!r}; write {place.down(name).key}=... or a line in {place.file}",
                field=place.down(name).key,
            )
    try:
        return kind(**filled)
    except InvalidInputError as error:
        raise ConfigError(f"{what}: {error}", field=error.field or place.key) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{what} is refused: {error}", field=place.key) from error


def _convert(kind: Any, value: Any, place: Place) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(kind, value, place)
    if origin is Literal:
        return _convert_literal(kind, value, place)
    if origin is tuple:
        return _convert_tuple(kind, value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _convert_mapping(kind, value, place)
    if is_dataclass(kind):
        return to_dataclass(kind, value, place)  # type: ignore[arg-type]
    return _convert_scalar(kind, value, place)


def _convert_scalar(kind: Any, value: Any, place: Place) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind is not Any and type(value) is not kind:
        _refuse(place, value, _expected(kind))
    return value


def _convert_literal(kind: Any, value: Any, place: Place) -> Any:
    if value not in get_args(kind):
        tail = did_you_mean(str(value), [str(each) for each in get_args(kind)])
        raise ConfigError(f"{place.key} is {value!r}{tail}", field=place.key)
    return value


def _convert_mapping(kind: Any, value: Any, place: Place) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(place, value, "key: value lines")
    inner = get_args(kind)[1]
    return {str(key): _convert(inner, each, place.down(str(key))) for key, each in value.items()}


def _convert_union(kind: Any, value: Any, place: Place) -> Any:
    members = [each for each in get_args(kind) if each is not types.NoneType]
    if value is None and len(members) < len(get_args(kind)):
        return None
    if len(members) == 1:
        return _convert(members[0], value, place)
    for member in members:
        try:
            return _convert(member, value, place)
        except ConfigError:
            continue
    return _refuse(place, value, _expected(kind))


def _convert_tuple(kind: Any, value: Any, place: Place) -> tuple[Any, ...]:
    inner = get_args(kind)
    if not isinstance(value, list | tuple):
        _refuse(place, value, "a list in [brackets]")
    if inner[-1] is Ellipsis:
        inner = (inner[0],) * len(value)
    if len(inner) != len(value):
        _refuse(place, value, f"a list of {len(inner)}")
    return tuple(_convert(each, part, place) for each, part in zip(inner, value, strict=True))


def _expected(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_expected(each) for each in get_args(kind))
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def _refuse(place: Place, value: Any, expected: str) -> NoReturn:
    kind = "null" if value is None else type(value).__name__
    shown = "" if value is None else f"{value!r} "
    raise ConfigError(
        f"{place.key} is {shown}({kind}); it needs {expected}; it may stand in {place.file}", field=place.key
    )
