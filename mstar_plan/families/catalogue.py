"""The families that can be served by name, and what each needs; a family is imported when it is loaded.

Other packages add theirs with an entry point of the group `mstar_plan.families`: NAME = "module:function".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points

from mstar_plan.errors import NotFoundError, UnavailableError, did_you_mean
from mstar_plan.families.servable import FamilyConfig, Servable

GROUP = "mstar_plan.families"
Loader = Callable[[str, FamilyConfig], Servable]


@dataclass(frozen=True)
class Entry:
    """One name of the catalogue.

    Attributes:
        loader: "module:function"; the function takes the name and a `FamilyConfig`.
        description: One sentence.
        needs: Extra of this package that installs what it needs; empty: nothing more.
    """

    loader: str
    description: str
    needs: str = ""


_F = "mstar_plan.families"
FAMILIES: Mapping[str, Entry] = {
    "smollm2": Entry(f"{_F}.llama:load_smollm2", "SmolLM2-135M-Instruct: chats and completes.", "language"),
    "llama": Entry(f"{_F}.llama:load_llama", "Any Llama; bring weights=FOLDER or FILE.gguf.", "language"),
    "assistant": Entry(f"{_F}.assistant:load_assistant", "Hears, writes and speaks: all the parts below.", "assistant"),
    "silero": Entry(f"{_F}.speech:load_silero", "Finds speech in a recording.", "assistant"),
    "whisper_tiny": Entry(f"{_F}.speech:load_whisper_tiny", "Writes down English speech.", "assistant"),
    "hibari": Entry(f"{_F}.speech:load_hibari", "Speaks English.", "assistant"),
    "orpheus": Entry(f"{_F}.orpheus:load_orpheus", "Speaks with feeling; bring weights=FOLDER.", "language"),
    "minilm": Entry(f"{_F}.embedding:load_minilm", "Maps sentences to vectors.", "language"),
    "pi0": Entry(f"{_F}.vla:load_vla", "A vision-language-action policy; bring weights=FOLDER.", "language"),
    "pi05": Entry(f"{_F}.vla:load_vla", "Its successor; bring weights=FOLDER.", "language"),
    "flow_reach": Entry(f"{_F}.flow_policy:load_flow_policy_family", "A small flow policy for Reach."),
    "flow_push": Entry(f"{_F}.flow_policy:load_flow_policy_family", "A small flow policy for Push."),
    "reach_rerank": Entry(f"{_F}.rerank:load_rerank", "It proposes for Reach, and a world model chooses."),
    "push_rerank": Entry(f"{_F}.rerank:load_rerank", "It proposes for Push, and a world model chooses."),
    "smolvla": Entry(f"{_F}.vla:load_vla", "A small one; bring weights=FOLDER.", "language"),
}


def families() -> Mapping[str, Entry]:
    """All families by name: this package's, and those that other installed packages add."""
    added = {
        point.name: Entry(point.value, f"Of the package {point.dist.name if point.dist else 'that added it'}.")
        for point in entry_points(group=GROUP)
    }
    return {**added, **FAMILIES}


def load_family(name: str, config: FamilyConfig | None = None) -> Servable:
    """Returns the family of this name, loaded.

    Raises:
        NotFoundError: There is no such name; the message lists those that there are.
        UnavailableError: A package that it needs is not installed.
        WeightsError: Its weights are damaged or of another architecture.
    """
    known = families()
    if name not in known:
        raise NotFoundError(f"there is no family {name!r}{did_you_mean(name, known)}", field="model")
    entry = known[name]
    module, _, function = entry.loader.partition(":")
    try:
        load: Loader = getattr(import_module(module), function)
        return load(name, config or FamilyConfig())
    except ImportError as error:
        missing = error.name or str(error)
        cure = f"pip install 'mstar-plan[{entry.needs}]'" if entry.needs else f"pip install {missing}"
        raise UnavailableError(f"model {name!r} needs {missing}, which is not there: {cure}", field="model") from error
