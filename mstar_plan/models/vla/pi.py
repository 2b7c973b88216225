"""What pi0 and pi0.5 share: the prefix of images and text, its keys and values, and the step of the action expert.

Shapes: B rows, I cameras, Y and X pixels, T = patches of one image, L prompt tokens, P prefix positions (with pi0's
state), S actions of a chunk, A padded action width, E expert width, D prefix width, N steps.

Only what is there gets a place in the prefix: tokens of missing cameras and padding of prompts are left out, which
changes no number (positions count what is there, and masked places have no weight), but saves their time in every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vla.flow import euler_times
from mstar_plan.models.vla.gemma import GemmaTower, Places, rotary_turns
from mstar_plan.models.vla.pi_config import PiConfig
from mstar_plan.models.vla.prefix_cache import PrefixCache
from mstar_plan.models.vla.siglip import SiglipTower

KEPT_TABLES = 4  # numbers of steps whose conditions are kept


def time_embedding(times_N: Tensor, width: int, config: PiConfig) -> Tensor:
    """Sines, then cosines, of times at periods spaced evenly in their logarithm (openpi): [N, width] float32."""
    dtype = torch.float64 if config.exact_time else torch.float32
    fraction = torch.linspace(0.0, 1.0, width // 2, dtype=dtype)
    period = config.min_period * (config.max_period / config.min_period) ** fraction
    angles = times_N.cpu().to(dtype)[:, None] * (1.0 / period * 2 * math.pi)
    return torch.cat([angles.sin(), angles.cos()], -1).to(torch.float32)


class PiPolicy(nn.Module):
    """Base of pi0 and pi0.5: see `FlowPolicy` for how a walk uses it.

    Args:
        config: Sizes.
        adaptive: The expert's norms follow the time.
    """

    observes: tuple[str, ...] = ("images", "image_mask", "tokens", "token_mask")

    def __init__(self, config: PiConfig, *, adaptive: bool) -> None:
        super().__init__()
        self.config = config
        self.vision = SiglipTower(config.vision)
        self.projector = nn.Linear(config.vision.width, config.language.width)
        self.embed = nn.Embedding(config.vocabulary, config.language.width)
        self.language = GemmaTower(config.language, final=False)
        self.expert = GemmaTower(config.expert, condition=config.expert.width if adaptive else 0)
        self.action_in = nn.Linear(config.action_width, config.expert.width)
        self.action_out = nn.Linear(config.expert.width, config.action_width)
        self._tables: dict[int, Tensor] = {}

    @property
    def chunk(self) -> int:
        """S."""
        return self.config.chunk

    @property
    def action_width(self) -> int:
        """A."""
        return self.config.action_width

    @property
    def steps(self) -> int:
        """Euler steps where a request does not say."""
        return self.config.steps

    @property
    def dtype(self) -> torch.dtype:
        """Of the two towers of text and actions; everything else is float32."""
        return self.language.layers[0].qkv.weight.dtype  # type: ignore[union-attr,return-value]

    def set_dtype(self, dtype: torch.dtype) -> None:
        """Casts the towers of text and actions; their norms stay float32, as published."""
        for tower in (self.language, self.expert):
            for module in tower.modules():
                if isinstance(module, nn.Linear):
                    module.to(dtype)
        self.embed.to(dtype)
        self._tables.clear()

    def image_features(self, pixels_BCYX: Tensor) -> Tensor:
        """Maps images [B, 3, Y_px, X_px] in [-1, 1] to prefix tokens [B, T, D]."""
        features: Tensor = self.projector(self.vision(pixels_BCYX.to(self.vision.position.dtype)))
        return features

    def embed_text(self, tokens_BL: Tensor) -> Tensor:
        """Token embeddings [B, L, D], times sqrt(D).

        Raises:
            InvalidInputError: A token id is not in the vocabulary.
        """
        if bool(((tokens_BL < 0) | (tokens_BL >= self.config.vocabulary)).any()):
            what = f"token ids {int(tokens_BL.min())} to {int(tokens_BL.max())} leave the vocabulary"
            raise InvalidInputError(f"{what} of {self.config.vocabulary}; use this policy's tokenizer", field="tokens")
        scale = torch.tensor(self.config.language.width**0.5, dtype=self.embed.weight.dtype)
        out: Tensor = self.embed(tokens_BL) * scale.to(tokens_BL.device)
        return out

    def embed_prefix(
        self, images_BICYX: Tensor, image_mask_BI: Tensor, tokens_BL: Tensor, token_mask_BL: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The prefix of each row: its cameras, then its prompt, without what is not there.

        Args:
            images_BICYX: In [-1, 1].
            image_mask_BI: Which cameras are there; pixels of others are not looked at.
            tokens_BL: Prompt ids.
            token_mask_BL: Which of them are there.

        Returns:
            Tokens [B, P, D], and which are there [B, P] where rows are of different lengths, else None.

        Raises:
            InvalidInputError: A row has neither image nor token.
        """
        rows = len(image_mask_BI)
        pixels, there = images_BICYX.flatten(0, 1), image_mask_BI.flatten()
        if bool(there.all()):
            features = self.image_features(pixels)
        else:
            shape = (len(pixels), self.config.vision.patches, self.config.language.width)
            features = self.projector.weight.new_zeros(shape)
            if bool(there.any()):
                features[there] = self.image_features(pixels[there])
        z_BPD = torch.cat([features.view(rows, -1, features.shape[-1]).to(self.dtype), self.embed_text(tokens_BL)], 1)
        seen_BP = torch.cat([image_mask_BI.repeat_interleave(self.config.vision.patches, 1), token_mask_BL], 1)
        return _packed(z_BPD, seen_BP)

    def see(self, observed: Mapping[str, Tensor]) -> PrefixCache:
        """Computes the prefix of a request's rows from what it `observes`."""
        z_BPD, seen_BP = self.embed_prefix(*[observed[name] for name in PiPolicy.observes])
        return self.fill(z_BPD, seen_BP, observed.get("state"))

    def fill(self, z_BPD: Tensor, seen_BP: Tensor | None, state_BZ: Tensor | None) -> PrefixCache:
        """Keys and values of an embedded prefix, and, where the policy has one, of its state token behind it."""
        rows, length, _ = z_BPD.shape
        config, room, extra = self.config.language, self.chunk, 0 if state_BZ is None else 1
        places = length + extra + room
        kv = z_BPD.new_zeros(2 * config.depth, rows, config.kv_heads, places, config.head_width)
        if seen_BP is None:
            positions = torch.arange(length, device=z_BPD.device).expand(rows, -1)
            ends = positions.new_full((rows, 1), length)
        else:
            positions = seen_BP.cumsum(1) - 1
            ends = positions[:, -1:] + 1
        later = ends + torch.arange(extra + room, device=z_BPD.device)
        turns = rotary_turns(later, self.config.expert, self.dtype)
        seen_BK = None if seen_BP is None else functional.pad(seen_BP, (0, extra + room), value=True)
        cache = PrefixCache(kv, seen_BK, turns[:, :, extra:].contiguous(), room)
        prefix_mask = None if seen_BP is None else seen_BP[:, None, None]
        keys, values = ([part[:, :, :length] for part in half] for half in (cache.keys, cache.values))
        self.language.fill(z_BPD, rotary_turns(positions, config, self.dtype), Places(keys, values, prefix_mask))
        if state_BZ is not None:
            self._add_state(state_BZ, turns[:, :, :1], cache, length)
        return cache

    def _add_state(self, state_BZ: Tensor, turns_2B1W: Tensor, cache: PrefixCache, at: int) -> None:
        raise AssertionError("this policy has no state token")

    def conditions(self, steps: int) -> Tensor:
        """What the time means to each of N steps, worked out once for each N: [N, ...]."""
        table = self._tables.get(steps)
        if table is None or table.device != self.action_in.weight.device:
            table = self.condition(euler_times(steps))
            if len(self._tables) >= KEPT_TABLES:
                self._tables.pop(next(iter(self._tables)), None)
            self._tables[steps] = table
        return table

    def condition(self, times_N: Tensor) -> Tensor:
        """What times mean to the expert: [N, ...]; see the policy."""
        raise NotImplementedError

    def velocity(
        self, x_BSA: Tensor, condition_B: Tensor, prefix: PrefixCache, clean_BS: Tensor | None = None
    ) -> Tensor:
        """The flow's velocity at x.

        Args:
            x_BSA: Noisy actions, float32.
            condition_B: A row of `condition` for each row.
            prefix: What was seen.
            clean_BS: Actions that are without noise.

        Returns:
            [B, S, A] float32.
        """
        raise NotImplementedError


def _packed(z_BPD: Tensor, seen_BP: Tensor) -> tuple[Tensor, Tensor | None]:
    """Moves what is there to the front, in order, and cuts what no row has."""
    lengths = seen_BP.sum(1)
    shortest, longest = (int(n) for n in torch.aminmax(lengths))
    if shortest == 0:
        raise InvalidInputError("an observation has neither an image nor a token; send at least one", field="images")
    if shortest == z_BPD.shape[1]:
        return z_BPD, None
    order = (~seen_BP).to(torch.int8).argsort(dim=1, stable=True)[:, :longest]
    packed = z_BPD.gather(1, order[..., None].expand(-1, -1, z_BPD.shape[-1]))
    if shortest == longest:
        return packed, None
    return packed, torch.arange(longest, device=z_BPD.device) < lengths[:, None]
