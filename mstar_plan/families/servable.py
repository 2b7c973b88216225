"""Servable: one family, loaded: its graph, the faces of its public walks, and what it is able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mstar_plan.errors import ConfigError
from mstar_plan.families.abilities import (
    ActionAbility,
    ConversationAbility,
    EmbeddingAbility,
    SpeechAbility,
    TextAbility,
    TranscriptionAbility,
)
from mstar_plan.families.face import WalkFace
from mstar_plan.walks.graph import Graph


@dataclass(frozen=True, kw_only=True)
class FamilyConfig:
    """How to load a family.

    Attributes:
        device: Torch device.
        dtype: Of the weights, where the family can choose: float32 or bfloat16.
        threads: Torch threads of one operator; 0: what the family is fastest with.
        weights: Weight file or folder to use in the place of the packaged one.
        kv_tokens: Tokens that the pool of attention keys and values holds, over all requests of a language model.
        wait_s: Seconds that a request may wait for room in a pool.
        attention: How a language model attends to its pool: sliced, gathered, flex, or auto, which goes by the device.
    """

    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 0
    weights: Path | None = None
    kv_tokens: int = 16384
    wait_s: float = 30.0
    attention: str = "auto"

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "bfloat16"):
            raise ConfigError(f"dtype is {self.dtype!r}; use float32 or bfloat16", field="dtype")
        if self.kv_tokens < 64:
            raise ConfigError(f"kv_tokens is {self.kv_tokens}; it needs at least 64", field="kv_tokens")
        if not 0 <= self.wait_s < 3600:
            raise ConfigError(f"wait_s is {self.wait_s}; it needs 0 to 3600 seconds", field="wait_s")


@dataclass(frozen=True, eq=False)
class Servable:
    """One family, ready to be put on a runtime.

    Attributes:
        name: What requests call it.
        graph: Its components and walks; `graph.name` is `name`.
        faces: {walk: face} of the walks that any wire may run.
        description: One sentence.
        licence: Of its weights.
        source: Where its weights come from.
        threads: Torch threads of one operator that it is fastest with.
        text: What wires may ask of it; None where it cannot. Likewise the others.
        close: Gives back what it holds.
    """

    name: str
    graph: Graph
    faces: Mapping[str, WalkFace] = field(default_factory=dict)
    description: str = ""
    licence: str = ""
    source: str = ""
    threads: int = 1
    text: TextAbility | None = None
    speech: SpeechAbility | None = None
    transcription: TranscriptionAbility | None = None
    conversation: ConversationAbility | None = None
    embedding: EmbeddingAbility | None = None
    action: ActionAbility | None = None
    close: Callable[[], None] | None = None

    @property
    def abilities(self) -> tuple[str, ...]:
        """Names of what it is able to do."""
        names = ("text", "speech", "transcription", "conversation", "embedding", "action")
        return tuple(name for name in names if getattr(self, name) is not None)
