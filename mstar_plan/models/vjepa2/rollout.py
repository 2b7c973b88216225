"""Exact fast rollouts of V-JEPA 2-AC: a step costs one frame, past frames are computed once for all candidates.

Shapes: B requests, K candidates, R rows of a chunk, C context frames, N patches, S tokens of a frame, D width of the
encoder, W width of the predictor, A action.
"""

from __future__ import annotations

from threading import get_ident

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.errors import ConfigError
from mstar_plan.models.layers.fused_linear import FusedLinear
from mstar_plan.models.layers.shared_attention import can_share
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor, step_table
from mstar_plan.models.vjepa2.blocks import Block
from mstar_plan.models.vjepa2.cache import Lane, RolloutCache
from mstar_plan.models.vjepa2.graphs import GraphCache
from mstar_plan.models.vjepa2.rollout_block import RolloutBlock, Rotation, Segment, Workspace
from mstar_plan.models.vjepa2.tuning import candidate_rows, fastest

MOST_ROWS = 256

Place = tuple[Lane, slice, slice]
Spaces = dict[tuple[int, int], Workspace]  # by rows and thread


class Rollout:
    """The action-conditioned predictor for rollouts.

    Candidates run through all blocks in chunks of `rows`: small enough for the processor's caches, large enough for its
    matrix units.

    Args:
        predictor: Has the weights.
        normalize: Whether a prediction goes through a layer norm without weights.
        rows: Candidates of a chunk.

    Raises:
        ConfigError: The predictor uses extrinsics.
    """

    def __init__(self, predictor: ACPredictor, *, normalize: bool, rows: int = 16) -> None:
        config = predictor.config
        if config.use_extrinsics:
            raise ConfigError("rollouts have no camera extrinsics to give; use a predictor without", field="predictor")
        self.config, self.normalize, self.rows = config, normalize, rows
        self.weight = predictor.predictor_embed.weight
        self.tokens = config.sequence_per_frame
        self.channels = config.width // config.num_heads
        self.blocks = [self._block(block, number) for number, block in enumerate(predictor.predictor_blocks)]
        self.embed = FusedLinear(predictor.predictor_embed.weight, predictor.predictor_embed.bias)
        self.action, self.state = predictor.action_encoder, predictor.state_encoder
        self.norm = predictor.predictor_norm
        self.proj = FusedLinear(predictor.predictor_proj.weight, predictor.predictor_proj.bias)
        self.graphs = GraphCache.on(self.weight.device)
        self._rotations: dict[int, Rotation] = {}
        self._spaces: Spaces = {}

    def _block(self, block: object, number: int) -> RolloutBlock:
        assert isinstance(block, Block)
        return RolloutBlock(block, number, self.rows * self.tokens)

    def tune(self) -> None:
        """Measures on the first two blocks how many rows a chunk is best made of."""
        weight = self.weight
        tries = candidate_rows(self.tokens, weight.device.type, MOST_ROWS)
        blocks, self.blocks = self.blocks, self.blocks[:2]
        try:
            self.rows = fastest(tries, self._try, weight.device)
        finally:
            self.blocks = blocks
            self._spaces.clear()
            self.graphs = GraphCache.on(weight.device)

    def _try(self, rows: int) -> None:
        config, like = self.config, self.weight
        self.rows = rows
        latent = like.new_zeros(1, rows, config.tokens_per_frame, config.embed_dim)
        action = like.new_zeros(1, rows, config.action_embed_dim)
        self.step(latent, action, None, self.begin(latent[:, :1], None, None, rows, 1))

    def begin(
        self, context: Tensor, actions: Tensor | None, states: Tensor | None, k: int, horizon: int
    ) -> RolloutCache:
        """Computes the past once.

        Args:
            context: [B, C, N, D] latents, the last one now.
            actions: [B, C - 1, A] taken at the earlier frames; None where C is 1.
            states: [B, C - 1, A] at the earlier frames; None: zeros.
            k: Candidates of each request.
            horizon: Frames that will be predicted at most.
        """
        b, count = context.shape[0], context.shape[1] - 1
        if count == 0:
            return RolloutCache(tuple(Lane(k, horizon, None) for _ in range(b)), 0)
        assert actions is not None
        cache = RolloutCache(tuple(Lane(1, count, None) for _ in range(b)), 0)
        for t in range(count):
            state = None if states is None else states[:, t, None]
            _, cache = self.step(context[:, t, None], actions[:, t, None], state, cache, predict=False)
        lanes = []
        for lane in cache.lanes:
            assert lane.own is not None
            lanes.append(Lane(k, horizon, (lane.own[0][:, 0], lane.own[1][:, 0])))
        return RolloutCache(tuple(lanes), count)

    def step(
        self, latent: Tensor, action: Tensor, state: Tensor | None, cache: RolloutCache, *, predict: bool = True
    ) -> tuple[Tensor, RolloutCache]:
        """Predicts one frame.

        Args:
            latent: [B, K, N, D]; may be one frame expanded over K.
            action: [B, K, A].
            state: [B, K, A]; None: zeros.
            cache: Where the rollout stands.
            predict: False only fills the cache.

        Returns:
            The next latent [B, K, N, D], and the cache behind it.
        """
        b, k = action.shape[:2]
        rotation = self._rotation(cache.frame)
        conditions = self._conditions(action, state)
        patches, known = self._start_patches(latent, k)
        spaces: Spaces = {} if self.graphs.eager else self._spaces  # kept only where graphs hold their addresses
        out = latent.new_empty(b, k, *latent.shape[2:]) if predict else latent
        rows = -(-b * k // -(-b * k // self.rows))  # equal chunks, none larger than was measured to be best
        for low in range(0, b * k, rows):
            high = min(low + rows, b * k)
            x = self._sequence(latent, patches, conditions, low, high)
            places = list(cache.segments(low, high))
            ready = None if known is None else rows_of(known, low, high)
            space = self._workspace(high - low, spaces)
            predicted = self._chunk(x, rotation, space, places, cache.step, predict=predict, known=ready)
            if predict:
                out.view(b * k, *out.shape[2:])[low:high] = predicted
        return out, cache.advanced()

    def _chunk(
        self,
        x: Tensor,
        rotation: Rotation,
        space: Workspace,
        places: list[Place],
        step: int,
        *,
        predict: bool,
        known: Tensor | None,
    ) -> Tensor:
        """Runs the tokens [R, S, W] of some rows through all blocks, to predicted tokens [R, N, D] if asked for.

        `known` [R, N, 3 W] is what the first block projects the patches to, if that is known.
        """
        segments = [self._segment(*place, step) for place in places]

        def run(tokens: Tensor) -> Tensor:
            for number, block in enumerate(self.blocks):
                tokens = block(tokens, rotation, segments, space, known if number == 0 else None)
            return self._read(tokens) if predict else tokens

        buffers = tuple((each.keys[0].data_ptr(), each.rows.start) for each in segments)
        return self.graphs.run((x.shape[0], step, id(rotation), predict, id(space), buffers), run, x)

    def _start_patches(self, latent: Tensor, k: int) -> tuple[Tensor | None, Tensor | None]:
        """Where all candidates stand at one frame: its embedding, and the first block's projection of it.

        Up to the first attention a patch does not know of the action, so both are computed once: [B, K, N, W] and
        [B, K, N, 3 W], expanded. A graph holds addresses, so that there the projection is left to it.
        """
        if latent.stride(1) != 0 or k == 1:
            return None, None
        patches = self.embed(latent[:, :1].contiguous())
        known = self.blocks[0].project(patches).expand(-1, k, -1, -1) if self.graphs.eager else None
        return patches.expand(-1, k, -1, -1), known

    def _workspace(self, rows: int, spaces: Spaces) -> Workspace:
        """Working space of a chunk, taken from or put into `spaces`."""
        key = rows, get_ident()
        if key not in spaces:
            spaces[key] = Workspace(rows, self.tokens, self.config.num_heads, self.channels, self.weight)
        return spaces[key]

    def _rotation(self, frame: int) -> Rotation:
        if frame not in self._rotations:
            table = step_table(self.config, torch.tensor([frame], device=self.weight.device))
            self._rotations[frame] = Rotation.of(table, self.weight.dtype)
        return self._rotations[frame]

    def _conditions(self, action: Tensor, state: Tensor | None) -> Tensor:
        """Tokens [B K, 2, W] of actions and states."""
        action = action.flatten(0, 1).to(self.weight.dtype)
        state = torch.zeros_like(action) if state is None else state.flatten(0, 1).to(self.weight.dtype)
        return torch.stack([self.action(action), self.state(state)], 1)

    def _sequence(self, latent: Tensor, patches: Tensor | None, conditions: Tensor, low: int, high: int) -> Tensor:
        """Tokens [R, S, W] of the rows low..high."""
        rows = rows_of(latent if patches is None else patches, low, high)
        if patches is None:
            rows = self.embed(rows.contiguous())
        return torch.cat([conditions[low:high], rows], 1)

    def _segment(self, lane: Lane, candidates: slice, rows: slice, step: int) -> Segment:
        """The cache of a lane's candidates as the blocks want it."""
        s, past = self.tokens, lane.past
        copied = 0 if past is None or can_share(past[0].device) else past[0].shape[2]
        fresh = lane.own is None
        tokens = copied + lane.horizon * s
        keys, values = lane.buffers(len(self.blocks), self.config.num_heads, tokens, self.channels, self.weight)
        if copied and fresh:
            assert past is not None
            for own, shared in zip((keys, values), past, strict=True):
                own[:, :, :, :copied] = shared[:, None]
        seen = copied + (step + 1) * s
        windows = [each[:, candidates, :, :seen] for each in (keys, values)]
        new = [window[:, :, :, -s:].transpose(2, 3) for window in windows]
        common = None if copied or past is None else list(zip(past[0].unbind(), past[1].unbind(), strict=True))
        views = [each.unbind() for each in (*windows, *new)]
        return Segment(rows, views[0], views[1], views[2], views[3], common)

    def _read(self, x: Tensor) -> Tensor:
        """Predicted tokens [R, N, D] of the blocks' result [R, S, W]."""
        y = self.proj(self.norm(x[:, self.config.condition_tokens :]))
        return functional.layer_norm(y, y.shape[-1:]) if self.normalize else y


def rows_of(values: Tensor, low: int, high: int) -> Tensor:
    """The rows low..high of [B, K, ...] counted along [B K]; a view where they are of one request."""
    k = values.shape[1]
    if low // k == (high - 1) // k:
        return values[low // k, low % k : (high - 1) % k + 1]
    return values.flatten(0, 1)[low:high]
