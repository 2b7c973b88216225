"""Written text as it comes from a walk: its deltas, counted on the way, and the tokens that it took."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.types import Scope

from mstar_plan.families.abilities import TextDelta, TextUsage, TokenLogprob
from mstar_plan.runtime.request import Done
from mstar_plan.serving.http.events import Events
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.metrics import MODEL


async def deltas_of(house: House, events: Events, scope: Scope) -> AsyncIterator[TextDelta | TextUsage]:
    """What a text walk writes, and at its end the tokens that it took; both are counted."""
    began = False
    async for event in events:
        if isinstance(event, Done):
            used: TextUsage = event.result.outputs["usage"]
            model = scope.get(MODEL, "")
            house.metrics.tokens.labels(model).inc(used.completion_tokens)
            house.metrics.prompt_tokens.labels(model).inc(used.prompt_tokens)
            yield used
            return
        if event.name != "deltas":
            continue
        for delta in event.value:
            if not began and (delta.tokens or delta.text):
                began = True
                house.metrics.first_output(scope, "token")
            yield delta


class WrittenAnswer:
    """One answer as it grows."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.logprobs: list[TokenLogprob] = []
        self.finish: str | None = None

    def add(self, delta: TextDelta) -> None:
        """It goes on."""
        self._parts.append(delta.text)
        self.logprobs += delta.logprobs
        self.finish = delta.finish or self.finish

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self._parts)
