"""SmolVLA (Shukor et al. 2025, "SmolVLA"; LeRobot's `policies/smolvla`): a small policy of pictures, words and a state.

Only what is there gets a place in the prefix: tokens of missing cameras, padding of prompts and of the prefix are left
out, which changes no number, since positions count what is there and masked places have no weight.

Shapes: B rows, I cameras, Y and X pixels, T tokens of a picture, L prompt tokens, P places of the prefix, its last one
the state; Z padded state width, S actions of a chunk, A padded action width, D prefix width, E expert width, N steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.vla.flow import euler_times
from mstar_plan.models.vla.gemma import attend
from mstar_plan.models.vla.smolvla_config import SmolVLAConfig
from mstar_plan.models.vla.smolvla_layers import Expert, SmolLayer, SmolVLACache, turns_of
from mstar_plan.models.vla.smolvla_vision import SmolVLMVision

KEPT_TABLES = 4  # numbers of steps whose conditions are kept


class SmolVLAPolicy(nn.Module):
    """SmolVLA as a `FlowPolicy`: see `act_walk` for how a walk uses it.

    Args:
        config: Sizes.
    """

    observes = ("images", "image_mask", "tokens", "token_mask", "state")

    def __init__(self, config: SmolVLAConfig) -> None:
        super().__init__()
        self.config = config
        self.vision = SmolVLMVision(config.vision, config.shuffle, config.width)
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.language = nn.ModuleList(SmolLayer(config, config.width, config.hidden) for _ in range(config.layers))
        self.expert = Expert(config)
        self.state_in = nn.Linear(config.state_width, config.width)
        self.action_in = nn.Linear(config.action_width, config.expert_width)
        self.mix_action = nn.Linear(config.expert_width, config.expert_width, bias=False)
        self.mix_time = nn.Linear(config.expert_width, config.expert_width)
        self.mix_out = nn.Linear(config.expert_width, config.expert_width)
        self.action_out = nn.Linear(config.expert_width, config.action_width)
        self._tables: dict[int, Tensor] = {}
        self._alone: Tensor | None = None

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
        """Of the layers; the projections of states, actions and times are float32."""
        return self.embed.weight.dtype

    def set_dtype(self, dtype: torch.dtype) -> None:
        """Casts the layers and the embedding; norms and projections stay float32."""
        for part in (self.language, self.expert):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    module.to(dtype)
        self.embed.to(dtype)
        self._alone = None

    # --- the prefix -----------------------------------------------------------------------------------------------

    def embed_image(self, pixels_BCYX: Tensor) -> Tensor:
        """Tokens of pictures in [-1, 1], times sqrt(D): [B, T, D]."""
        features = self.vision(pixels_BCYX.to(self.vision.connector.weight.dtype))
        scaled: Tensor = features * self.config.width**0.5
        return scaled

    def embed_text(self, tokens_BL: Tensor) -> Tensor:
        """Token embeddings [B, L, D], times sqrt(D).

        Raises:
            InvalidInputError: A token id is not in the vocabulary.
        """
        if bool(((tokens_BL < 0) | (tokens_BL >= self.config.vocabulary)).any()):
            what = f"token ids {int(tokens_BL.min())} to {int(tokens_BL.max())} leave the vocabulary"
            raise InvalidInputError(f"{what} of {self.config.vocabulary}; use this policy's tokenizer", field="tokens")
        out: Tensor = self.embed(tokens_BL) * math.sqrt(self.config.width)
        return out

    def embed_prefix(self, observed: Mapping[str, Tensor], *, all_images: bool = False) -> tuple[Tensor, Tensor]:
        """The prefix before anything is left out: cameras with their marks, prompt, state.

        Args:
            observed: What `observes` names.
            all_images: Look at pictures of missing cameras too; else their tokens are 0, which nobody reads.

        Returns:
            Tokens [B, P, D], and which of them are there [B, P].

        Raises:
            InvalidInputError: Shapes do not fit together, or a token id is not in the vocabulary.
        """
        images, image_mask, tokens, token_mask, state = (observed[name] for name in self.observes)
        rows, cameras = self._check(images, image_mask, tokens, token_mask, state)
        before, after = self._marks(rows * cameras)
        features = self._embed_images(images.flatten(0, 1), image_mask.flatten() | all_images).to(self.dtype)
        seen = image_mask.flatten()[:, None].expand(-1, features.shape[1])
        marked = torch.cat([before, features, after], 1)
        seen = torch.cat([seen.new_ones(before.shape[:2]), seen, seen.new_ones(after.shape[:2])], 1)
        state_B1D = self.state_in(state.to(self.state_in.weight.dtype))[:, None].to(self.dtype)
        parts = [marked.reshape(rows, -1, self.config.width), self.embed_text(tokens), state_B1D]
        there = [seen.reshape(rows, -1), token_mask, token_mask.new_ones(rows, 1)]
        return torch.cat(parts, 1), torch.cat(there, 1)

    def _embed_images(self, pixels: Tensor, there: Tensor) -> Tensor:
        if bool(there.all()):
            return self.embed_image(pixels)
        shape = (len(pixels), self.vision.tokens_of(pixels), self.config.width)
        features = self.vision.connector.weight.new_zeros(shape)
        if bool(there.any()):
            features[there] = self.embed_image(pixels[there])
        return features

    def _check(
        self, images: Tensor, image_mask: Tensor, tokens: Tensor, token_mask: Tensor, state: Tensor
    ) -> tuple[int, int]:
        if images.ndim != 5 or image_mask.shape != images.shape[:2] or image_mask.dtype != torch.bool:
            what = f"images are {list(images.shape)} and their mask {image_mask.dtype} {list(image_mask.shape)}"
            raise InvalidInputError(f"{what}; send [B, cameras, 3, S, S] and bool [B, cameras]", field="images")
        rows, cameras = image_mask.shape
        if (
            tokens.shape != token_mask.shape
            or tokens.ndim != 2
            or len(tokens) != rows
            or token_mask.dtype != torch.bool
        ):
            what = f"tokens are {list(tokens.shape)} and their mask {token_mask.dtype} {list(token_mask.shape)}"
            raise InvalidInputError(f"{what}; send two of [{rows}, L], the mask in bool", field="tokens")
        if state.shape != (rows, self.config.state_width):
            what = f"state is {list(state.shape)}; send [{rows}, {self.config.state_width}]"
            raise InvalidInputError(f"{what}, padded with zeros", field="state")
        return rows, cameras

    def _marks(self, pictures: int) -> tuple[Tensor, Tensor]:
        """Embeddings of what stands before and after each picture: [pictures, 2 and 1, D], or none; not scaled."""
        ids = self.config.image_marks
        weight = self.embed.weight
        if ids is None:
            nothing = weight.new_zeros(pictures, 0, self.config.width)
            return nothing, nothing
        return weight[list(ids)].expand(pictures, -1, -1), weight[[ids[0]]].expand(pictures, -1, -1)

    def see(self, observed: Mapping[str, Tensor]) -> SmolVLACache:
        """Runs the prefix of some rows, and keeps what the expert reads of it."""
        z_BPD, seen_BP = self.embed_prefix(observed)
        z_BPD, seen = _packed(z_BPD, seen_BP)
        rows, places, _ = z_BPD.shape
        config, room = self.config, self.chunk
        count = torch.full((rows,), places, device=z_BPD.device) if seen is None else seen.sum(1)
        at_BS = count[:, None] + torch.arange(room, device=z_BPD.device)
        shape = (2 * len(self.expert.layers), rows, config.kv_heads, places + room, config.head_width)
        seen_BK = None if seen is None else functional.pad(seen, (0, room), value=True)
        turns_2BSW = turns_of(at_BS, config.head_width, self.dtype)
        cache = SmolVLACache(z_BPD.new_zeros(shape), seen_BK, turns_2BSW, room)
        self._fill(z_BPD, seen, cache)
        return cache

    def _fill(self, z_BPD: Tensor, seen_BP: Tensor | None, cache: SmolVLACache) -> None:
        """Runs the layers of the prefix; its state, at the end, sees all, and nothing else sees the state."""
        rows, places, _ = z_BPD.shape
        config = self.config
        mask_PP = torch.ones(places, places, dtype=torch.bool, device=z_BPD.device)
        mask_PP[:-1, -1] = False
        mask = mask_PP[None] if seen_BP is None else mask_PP & seen_BP[:, None]
        mask = mask[:, None].repeat(1, 1, config.heads // config.kv_heads, 1)
        positions = torch.arange(places, device=z_BPD.device).expand(rows, -1)
        if seen_BP is not None:
            positions = seen_BP.cumsum(1) - 1
        turns = turns_of(positions, config.head_width, self.dtype)
        for i, layer in enumerate(self.language):
            assert isinstance(layer, SmolLayer)
            q, k, v = layer.project(z_BPD, turns)
            beside = config.expert_of(i)
            if beside is not None:
                reader = self.expert.layers[beside]
                assert isinstance(reader, SmolLayer)
                kept = reader.take(k, v) if reader.reads_prefix else (k, v)
                cache.keys[beside][:, :, :places].copy_(kept[0])
                cache.values[beside][:, :, :places].copy_(kept[1])
            if i + 1 < config.layers:  # nobody reads what the prefix itself would become
                z_BPD = layer.finish(z_BPD, attend(q, k, v, mask))

    # --- the flow -------------------------------------------------------------------------------------------------

    def conditions(self, steps: int) -> Tensor:
        """What the time adds to the actions at each of N steps, worked out once for each N: [N, E]."""
        table = self._tables.get(steps)
        if table is None or table.device != self.mix_time.weight.device:
            table = self.condition(euler_times(steps))
            if len(self._tables) >= KEPT_TABLES:
                self._tables.pop(next(iter(self._tables)), None)
            self._tables[steps] = table
        return table

    def condition(self, times_N: Tensor) -> Tensor:
        """What times add to the actions: [N, E]; sines, then cosines, at periods evenly spaced in their logarithm."""
        config = self.config
        fraction = torch.linspace(0.0, 1.0, config.expert_width // 2, dtype=torch.float64)
        period = config.min_period * (config.max_period / config.min_period) ** fraction
        angles = times_N.cpu().double()[:, None] * (1.0 / period * 2 * math.pi)
        embedded = torch.cat([angles.sin(), angles.cos()], -1).to(self.mix_time.weight)
        out: Tensor = self.mix_time(embedded)
        return out

    def velocity(
        self, x_BSA: Tensor, condition_B: Tensor, prefix: SmolVLACache, clean_BS: Tensor | None = None
    ) -> Tensor:
        """The flow's velocity at x.

        Args:
            x_BSA: Noisy actions, float32.
            condition_B: A row of `condition` for each row.
            prefix: What was seen.
            clean_BS: Not taken.

        Returns:
            [B, S, A] float32.

        Raises:
            ConfigError: Some actions are clean, which SmolVLA is not trained for.
        """
        if clean_BS is not None:
            raise ConfigError("SmolVLA is not trained with clean prefixes; use chunking mode 'guided'", field="mode")
        mixed_BSE = functional.silu(self.mix_action(self.action_in(x_BSA)) + condition_B[:, None])
        z_BSE = self.expert(self.mix_out(mixed_BSE).to(self.dtype), prefix, self._alone_turns())
        out: Tensor = self.action_out(z_BSE.float())
        return out

    def _alone_turns(self) -> Tensor:
        weight = self.embed.weight
        if self._alone is None or self._alone.device != weight.device:
            places = torch.arange(self.chunk, device=weight.device)[None]
            self._alone = turns_of(places, self.config.head_width, weight.dtype)
        return self._alone


def _packed(z_BPD: Tensor, seen_BP: Tensor) -> tuple[Tensor, Tensor | None]:
    """Moves what is there to the front, in order, with the state at the end of all, and cuts what no row has."""
    lengths = seen_BP.sum(1)
    shortest, longest = (int(n) for n in torch.aminmax(lengths))
    if shortest == 1:
        raise InvalidInputError("an observation has neither an image nor a token; send at least one", field="images")
    if shortest == z_BPD.shape[1]:
        return z_BPD, None
    order = (~seen_BP[:, :-1]).to(torch.int8).argsort(stable=True, dim=1)[:, : longest - 1]
    order = functional.pad(order, (0, 1), value=z_BPD.shape[1] - 1)
    packed = z_BPD.gather(1, order[..., None].expand(-1, -1, z_BPD.shape[-1]))
    if shortest == longest:
        return packed, None
    seen = torch.arange(longest, device=z_BPD.device) < lengths[:, None] - 1
    seen[:, -1] = True
    return packed, seen
