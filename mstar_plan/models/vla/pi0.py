"""pi0 (Black et al. 2024): a state token, and actions that are mixed with the flow's time before the expert.

The state token sees the prefix and itself, but neither actions nor time. So its keys and values are the same in every
step: they are computed once, and stand behind the prefix.

Shapes: B rows, Z padded state width, S actions of a chunk, A padded action width, E expert width, N times.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vla.gemma import Places
from mstar_plan.models.vla.pi import PiPolicy, time_embedding
from mstar_plan.models.vla.pi_config import PiConfig
from mstar_plan.models.vla.prefix_cache import PrefixCache


class Pi0Policy(PiPolicy):
    """pi0 as a `FlowPolicy`; it observes its state beside images and prompt.

    Args:
        config: Sizes.
    """

    observes = (*PiPolicy.observes, "state")

    def __init__(self, config: PiConfig) -> None:
        super().__init__(config, adaptive=False)
        width = config.expert.width
        self.state_in = nn.Linear(config.state_width, width)
        self.mix_in = nn.Linear(2 * width, width)
        self.mix_out = nn.Linear(width, width)

    def condition(self, times_N: Tensor) -> Tensor:
        """Embedded times: [N, E]."""
        return time_embedding(times_N, self.config.expert.width, self.config).to(self.mix_in.weight.device)

    def embed_state(self, state_BZ: Tensor) -> Tensor:
        """The state token [B, 1, E].

        Raises:
            InvalidInputError: The state is of another width.
        """
        if state_BZ.shape[1:] != (self.config.state_width,):
            what = f"state has shape {list(state_BZ.shape)}; this policy needs [B, {self.config.state_width}]"
            raise InvalidInputError(f"{what}: pad it with zeros", field="state")
        out: Tensor = self.state_in(state_BZ.float())
        return out[:, None]

    def embed_actions(self, x_BSA: Tensor, condition_BE: Tensor) -> Tensor:
        """Noisy actions mixed with the time: [B, S, E]."""
        actions_BSE = self.action_in(x_BSA)
        both = torch.cat([actions_BSE, condition_BE[:, None].expand_as(actions_BSE)], -1)
        out: Tensor = self.mix_out(functional.silu(self.mix_in(both)))
        return out

    def _add_state(self, state_BZ: Tensor, turns_2B1W: Tensor, cache: PrefixCache, at: int) -> None:
        mask_B11K = torch.arange(at + 1 + cache.room, device=state_BZ.device).expand(len(state_BZ), 1, 1, -1) <= at
        if cache.mask is not None:
            mask_B11K = mask_B11K & cache.mask
        places = Places(cache.keys, cache.values, mask_B11K)
        self.expert.extend(self.embed_state(state_BZ).to(self.dtype), turns_2B1W, places, at)

    def velocity(
        self, x_BSA: Tensor, condition_B: Tensor, prefix: PrefixCache, clean_BS: Tensor | None = None
    ) -> Tensor:
        """See `PiPolicy.velocity`.

        Raises:
            InvalidInputError: There is a clean prefix, which only pi0.5 can be trained with.
        """
        if clean_BS is not None:
            raise InvalidInputError("pi0 has no clean prefixes; use chunking mode 'guided'", field="previous")
        z_BSE = self.embed_actions(x_BSA, condition_B).to(self.dtype)
        z_BSE = self.expert.extend(z_BSE, prefix.turns_2BSW, prefix.places, prefix.length)
        out: Tensor = self.action_out(z_BSE.float())
        return out
