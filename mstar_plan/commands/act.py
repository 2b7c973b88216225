"""`mstar-plan act`: ask a policy what to do, from what is seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from mstar_plan.commands.family import OneFamily, opened
from mstar_plan.commands.output import write_text
from mstar_plan.commands.plan import read_picture
from mstar_plan.config import load
from mstar_plan.errors import ConfigError, InvalidInputError, did_you_mean
from mstar_plan.families.abilities import ActionAbility, ObservationField


@dataclass(frozen=True, kw_only=True)
class ActConfig(OneFamily):
    """Which policy, and what of it.

    Attributes:
        seed: Of its noise.
        out: File for the actions as JSON; None: they are printed.
    """

    seed: int = 0
    out: str = ""


def act(seen: Sequence[str], words: Sequence[str]) -> None:
    """Prints the actions of one answer, with their names and units.

    Args:
        seen: key=value words of what is seen: a picture's file, a text, or numbers with commas between.
        words: Settings.
    """
    config = load("act", words, ActConfig)
    with opened(config, "action") as (servable, runtime):
        assert servable.action is not None
        call = servable.action.act(_observation(servable.action, seen), seed=config.seed)
        result = runtime.submit(call.walk, call.values, graph=servable.name, here=True).result()
        spec = servable.action.action
    answer = {
        "model": config.model,
        "names": list(spec.names),
        "units": list(spec.units),
        "dt_s": spec.dt_s,
        "actions": [[round(float(x), 6) for x in row] for row in result.outputs["actions"][0].tolist()],
    }
    if config.out:
        write_text(Path(config.out), json.dumps(answer, indent=1))
    else:
        typer.echo(json.dumps(answer))


def _observation(ability: ActionAbility, seen: Sequence[str]) -> dict[str, Any]:
    fields = {field.key: field for field in ability.fields}
    found: dict[str, Any] = {}
    for word in seen:
        key, sign, value = word.partition("=")
        if not sign:
            raise ConfigError(f"{word!r} is no key=value; write for example observation/image=now.png", field="see")
        if key not in fields:
            raise InvalidInputError(f"the policy sees no {key!r}{did_you_mean(key, fields)}", field=key)
        found[key] = _read(fields[key], value)
    return found


def _read(field: ObservationField, value: str) -> Any:
    if field.kind == "text":
        return value
    if field.kind == "image":
        return read_picture(Path(value))
    try:
        return np.array([float(number) for number in value.split(",")], np.float32)
    except ValueError as error:
        raise ConfigError(f"{field.key} is {value!r}; write numbers as 0.1,-0.2,0", field=field.key) from error
