"""Ports of world models: their samples fit them, and plain values are in the action's units."""

from __future__ import annotations

import pytest
import torch
from planning_worlds import Glider, Proprioceptive, Slow

from mstar_plan.errors import ComponentError
from mstar_plan.families.face import WalkFace
from mstar_plan.families.world_ports import actions, goal_port, latents, pictures, presenter, view
from mstar_plan.models.toy import ToyWorld


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (ToyWorld, ["frames"]),
        (Glider, ["frames", "context_latents", "context_actions"]),
        (Proprioceptive, ["frames", "state"]),
    ],
)
def test_what_a_model_sees(model, names):
    spec = model().spec
    ports = view(spec)
    assert list(ports) == names
    assert ports["frames"].sample().shape == (1, spec.context_frames, 64, 64, 3)


@pytest.mark.parametrize("goal", ["goal_frames", "goal_latent"])
def test_samples_fit(goal):
    spec = Slow().spec
    ports = {**view(spec), goal: goal_port(spec, goal), "a": actions(spec, (None, 3), "a"), "b": latents(spec, 2, "b")}
    face = WalkFace("w", ports, {})
    face.check({name: port.sample() for name, port in ports.items()})
    middle = ports["a"].sample()
    assert middle.shape == (1, 1, 3, 2)
    assert middle[0, 0, 0].tolist() == [0.25, 0.0]


def test_descriptions_name_units():
    spec = ToyWorld().spec
    port = actions(spec, (), "executed")
    assert (port.description, port.unit, port.shape) == ("executed: velocity_x, velocity_y", "1/s, 1/s", (None, 2))
    assert pictures(spec, None, "seen").dtype == "uint8"


def test_values_are_made_plain():
    present = presenter(Slow().spec)  # from -0.5 to 1, and from -1 to 1
    edge = torch.tensor([[1.0, -1.0]])
    assert present("mean", edge).tolist() == [[1.0, -1.0]]
    assert present("elites", -edge).tolist() == [[-0.5, 1.0]]
    assert present("std", torch.ones(1, 2)).tolist() == [[0.75, 1.0]]
    assert present("plan", edge.bfloat16()).dtype is torch.float32
    assert present("costs", torch.tensor([torch.inf])).item() == torch.inf
    with pytest.raises(ComponentError, match="finite cost"):
        present("cost", torch.tensor([torch.inf]))
