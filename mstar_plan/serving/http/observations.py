"""What a robot sends over the openpi websocket, as a policy takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mstar_plan.errors import InvalidInputError, did_you_mean
from mstar_plan.families.abilities import ActionAbility, ObservationField
from mstar_plan.serving.http.msgpack_arrays import unpack
from mstar_plan.types import FloatArray, finite_array

OPTIONS = "options"
KNOWN = ("seed", "previous", "delay", "deadline_s")
Value = npt.NDArray[np.generic] | str | float


@dataclass(frozen=True, eq=False)
class Query:
    """One message of a robot: an observation, or `reset`.

    Attributes:
        observation: {key of the policy's fields: value}.
        reset: It asks for a fresh start instead.
        seed: Of the noise.
        previous: [n, A] actions of the last answer that are not executed yet.
        delay: How many of them will be executed before the answer is there.
        deadline_s: Seconds that the answer is worth waiting for.
    """

    observation: Mapping[str, Value]
    reset: bool = False
    seed: int | None = None
    previous: FloatArray | None = None
    delay: int = 0
    deadline_s: float | None = None


def query_of(data: bytes, policy: ActionAbility, limit: int) -> Query:
    """Returns what a robot's message says.

    Maps inside the observation are taken apart: {"images": {"top": x}} is the key "images/top". States come as any
    numbers and become float32; images may come with the channels first.

    Args:
        data: The message.
        policy: Whom it is for.
        limit: Most bytes.

    Raises:
        InvalidInputError: It is not MessagePack, no map, or an option is unknown or of another type.
        LimitExceededError: It is too large.
    """
    message = unpack(data, limit)
    if not isinstance(message, dict):
        raise InvalidInputError(f"the message is a {type(message).__name__}; send a map of observations")
    fields = {field.key: field for field in policy.fields}
    if "endpoint" in message and "endpoint" not in fields:
        if message["endpoint"] != "reset":
            raise InvalidInputError(f"endpoint is {str(message['endpoint'])[:40]!r}; known: 'reset'", field="endpoint")
        return Query({}, reset=True)
    options = message.pop(OPTIONS, {}) if OPTIONS not in fields else {}
    observation = {key: _value(key, value, fields.get(key)) for key, value in _flat(message, fields).items()}
    return Query(observation, **_options(options))


def _flat(values: Mapping[str, Any], fields: Mapping[str, ObservationField], place: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{place}/{key}" if place else key
        flat.update(_flat(value, fields, name) if isinstance(value, dict) and name not in fields else {name: value})
    return flat


def _value(key: str, value: Any, field: ObservationField | None) -> Value:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list):
        value = finite_array(value, key, ndim=1)
    if not isinstance(value, np.ndarray | str | int | float):
        raise InvalidInputError(
            f"{key[:80]!r} is a {type(value).__name__}; send an array, a number or a text", field=key
        )
    if field is None or not isinstance(value, np.ndarray):
        return value
    if field.kind == "state" and value.ndim == 1:
        return finite_array(value, key, ndim=1)
    if field.kind == "image" and value.ndim == 3 and value.shape[0] == 3 and value.shape[-1] != 3:
        return np.ascontiguousarray(np.moveaxis(value, 0, -1))
    return value


def _options(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidInputError(f"{OPTIONS} is a {type(given).__name__}; send a map", field=OPTIONS)
    options: dict[str, Any] = {}
    for name, value in given.items():
        plain = value.item() if isinstance(value, np.generic) else value
        if name not in KNOWN:
            raise InvalidInputError(f"there is no option {name[:40]!r}{did_you_mean(name[:40], KNOWN)}", field=OPTIONS)
        if plain is None:
            continue
        where = f"{OPTIONS}.{name}"
        if name == "previous":
            options[name] = finite_array(plain, where, ndim=2)
        elif name == "deadline_s" and type(plain) in (int, float):
            options[name] = float(plain)
        elif type(plain) is int and (name == "seed" or plain >= 0):
            options[name] = plain
        else:
            raise InvalidInputError(f"{where} is {str(plain)[:40]}; see the server's metadata", field=where)
    return options
