"""Models: what is served, by OpenAI's own client."""

from __future__ import annotations

import openai
import pytest
from http_world import World
from openai import OpenAI


def test_all_models_and_one(world: World) -> None:
    with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as client:
        names = [model.id for model in client.models.list()]
        speaker = client.models.retrieve("speaker")
        with pytest.raises(openai.NotFoundError, match="did you mean 'speaker'"):
            client.models.retrieve("speakr")
        doubler = client.models.retrieve("doubler")
    assert names == ["scribe", "speaker", "listener", "mapper", "driver", "doubler"]
    assert (speaker.id, speaker.object, speaker.owned_by) == ("speaker", "model", "mstar")
    assert speaker.model_extra is not None
    assert speaker.model_extra["abilities"] == ["speech"]
    assert speaker.model_extra["voices"] == ["low", "high"]
    assert doubler.model_extra is not None
    assert doubler.model_extra["walks"] == ["double"]
