"""The families that can be served by name, and what each needs; a family is imported when it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from mstar_plan.errors import NotFoundError, UnavailableError, did_you_mean
from mstar_plan.families.servable import FamilyConfig, Servable

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


FAMILIES: Mapping[str, Entry] = {
    "smollm2": Entry(
        "mstar_plan.families.llama:load_smollm2", "SmolLM2-135M-Instruct: chats and completes.", "assistant"
    ),
    "llama": Entry(
        "mstar_plan.families.llama:load_llama", "Any Llama; bring weights=FOLDER or FILE.gguf.", "assistant"
    ),
}


def load_family(name: str, config: FamilyConfig | None = None) -> Servable:
    """Returns the family of this name, loaded.

    Raises:
        NotFoundError: There is no such name; the message lists those that there are.
        UnavailableError: A package that it needs is not installed.
        WeightsError: Its weights are damaged or of another architecture.
    """
    if name not in FAMILIES:
        raise NotFoundError(f"there is no family {name!r}{did_you_mean(name, FAMILIES)}", field="model")
    entry = FAMILIES[name]
    module, _, function = entry.loader.partition(":")
    try:
        load: Loader = getattr(import_module(module), function)
        return load(name, config or FamilyConfig())
    except ImportError as error:
        cure = f"pip install 'mstar-plan[{entry.needs}]'" if entry.needs else "reinstall mstar-plan"
        raise UnavailableError(
            f"model {name!r} needs {error.name or error}, which is missing: {cure}", field="model"
        ) from error
