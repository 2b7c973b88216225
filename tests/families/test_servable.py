"""Servables say what they are able to do, and their settings check themselves."""

from __future__ import annotations

import pytest
from toy_catalogue import load_actor, load_hummer, load_writer

from mstar_plan.errors import ConfigError
from mstar_plan.families.servable import FamilyConfig


def test_abilities() -> None:
    made = [load(name, FamilyConfig()) for name, load in (("w", load_writer), ("h", load_hummer), ("a", load_actor))]
    assert [each.abilities for each in made] == [("text",), ("speech",), ("action",)]
    assert [each.graph.name for each in made] == ["w", "h", "a"]


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"dtype": "float16"}, "dtype"), ({"kv_tokens": 8}, "kv_tokens"), ({"wait_s": -1}, "wait_s")],
)
def test_mistakes(settings: dict, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FamilyConfig(**settings)
    assert caught.value.field == field
