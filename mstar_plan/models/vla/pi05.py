"""pi0.5 (Physical Intelligence 2025): the state is text in the prompt, and the expert's norms follow the flow's time.

The expert's scales, shifts and gates depend on the time alone: they are worked out for all steps before the loop.

Shapes: B rows, S actions of a chunk, A padded action width, E expert width, N times, M = 3 numbers of each norm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.models.vla.pi import PiPolicy, time_embedding
from mstar_plan.models.vla.pi_config import PiConfig
from mstar_plan.models.vla.prefix_cache import PrefixCache


class Pi05Policy(PiPolicy):
    """pi0.5 as a `FlowPolicy`.

    Args:
        config: Sizes.
    """

    def __init__(self, config: PiConfig) -> None:
        super().__init__(config, adaptive=True)
        width = config.expert.width
        self.time_in = nn.Linear(width, width)
        self.time_out = nn.Linear(width, width)
        self._clean: Tensor | None = None

    def set_dtype(self, dtype: torch.dtype) -> None:
        """See `PiPolicy.set_dtype`."""
        super().set_dtype(dtype)
        self._clean = None

    def time_condition(self, times_N: Tensor) -> Tensor:
        """What drives the norms at each time: [N, E]."""
        embedded = time_embedding(times_N, self.config.expert.width, self.config).to(self.time_in.weight.device)
        out: Tensor = functional.silu(self.time_out(functional.silu(self.time_in(embedded))))
        return out

    def condition(self, times_N: Tensor) -> Tensor:
        """Scales, shifts and gates of all norms at each time: [N, M, E]."""
        return self.expert.modulations(self.time_condition(times_N).to(self.dtype))

    def velocity(
        self, x_BSA: Tensor, condition_B: Tensor, prefix: PrefixCache, clean_BS: Tensor | None = None
    ) -> Tensor:
        """See `PiPolicy.velocity`; a clean action's norms follow the time 0."""
        condition = condition_B[:, :, None]
        if clean_BS is not None:
            condition = torch.where(clean_BS[:, None, :, None], self._clean_condition()[:, None], condition)
        z_BSE = self.action_in(x_BSA).to(self.dtype)
        z_BSE = self.expert.extend(z_BSE, prefix.turns_2BSW, prefix.places, prefix.length, condition.unbind(1))
        out: Tensor = self.action_out(z_BSE.float())
        return out

    def _clean_condition(self) -> Tensor:
        if self._clean is None or self._clean.device != self.action_in.weight.device:
            self._clean = self.condition(torch.zeros(1))[0]
        return self._clean
