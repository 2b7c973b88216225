from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.spatial.transform import Rotation

from mstar_plan.models.vjepa2.pose import (
    compute_new_pose,
    euler_angles,
    past_poses,
    pose_difference,
    previous_pose,
    rotation_matrix,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "vjepa2_ac_cem" / "io.safetensors"


def poses(count, seed, angle=7.0):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(count, 3)), rng.uniform(-angle, angle, (count, 3)), rng.uniform(0, 1, (count, 1))]
    return torch.from_numpy(np.concatenate(parts, 1))


def scipy_compose(pose, action):
    turn = Rotation.from_euler("xyz", action[:, 3:6]) * Rotation.from_euler("xyz", pose[:, 3:6])
    gripper = np.clip(pose[:, 6:] + action[:, 6:], 0, 1)
    return np.concatenate([pose[:, :3] + action[:, :3], turn.as_euler("xyz"), gripper], 1)


def test_it_is_the_composition_of_scipy_for_large_angles_too():
    pose, action = poses(500, 0), poses(500, 1)
    found = compute_new_pose(pose, action)
    np.testing.assert_allclose(found.numpy(), scipy_compose(pose.numpy(), action.numpy()), atol=1e-10)


def test_it_equals_the_published_code():
    io = load_file(GOLDEN)
    found = compute_new_pose(io["in.pose_a"], io["in.pose_action"])
    torch.testing.assert_close(found, io["out.new_pose"], atol=1e-6, rtol=0)
    difference = pose_difference(io["in.diff_start"], io["in.diff_end"])
    torch.testing.assert_close(difference, io["out.pose_diff"], atol=1e-12, rtol=0)


def test_an_action_that_does_not_turn_still_brings_angles_into_their_range():
    pose = poses(200, 9, angle=40.0)
    still = torch.zeros_like(pose)
    found = compute_new_pose(pose, still)[:, 3:6]
    assert (found.abs() <= torch.tensor([np.pi, np.pi / 2, np.pi]) + 1e-12).all()
    np.testing.assert_allclose(rotation_matrix(found), rotation_matrix(pose[:, 3:6]), atol=1e-12)


def test_batches_of_any_shape_and_float32_stay_what_they_are():
    pose, action = poses(24, 2).float(), poses(24, 3).float()
    found = compute_new_pose(pose.view(2, 3, 4, 7), action.view(2, 3, 4, 7))
    assert found.dtype == torch.float32
    assert torch.equal(found.view(24, 7), compute_new_pose(pose, action))


@pytest.mark.filterwarnings("ignore:Gimbal lock")
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_where_two_axes_meet_the_last_angle_is_zero_as_in_scipy(sign):
    angles = poses(50, 4)[:, 3:6]
    angles[:, 1] = sign * np.pi / 2
    matrices = Rotation.from_euler("xyz", angles.numpy()).as_matrix()
    found = euler_angles(torch.from_numpy(matrices))
    expected = Rotation.from_matrix(matrices).as_euler("xyz")
    turns = np.angle(np.exp(1j * (found.numpy() - expected)))
    assert np.abs(turns).max() < 1e-6
    np.testing.assert_allclose(rotation_matrix(found).numpy(), matrices, atol=1e-6)


def test_the_gripper_stays_within_its_range():
    pose, action = torch.zeros(2, 7), torch.zeros(2, 7)
    pose[:, 6], action[:, 6] = 0.5, torch.tensor([0.9, -0.9])
    assert compute_new_pose(pose, action)[:, 6].tolist() == [1.0, 0.0]


def test_the_difference_leads_from_one_pose_to_the_other():
    start, end = poses(100, 5, angle=1.4), poses(100, 6, angle=1.4)
    assert torch.allclose(compute_new_pose(start, pose_difference(start, end)), end, atol=1e-9)


def test_past_poses_lead_to_the_one_now():
    pose, actions = poses(3, 7, angle=1.0), 0.1 * poses(9, 8, angle=1.0).view(3, 3, 7)
    pose[:, 6] = 0.5
    past = past_poses(pose, actions)
    assert past.shape == (3, 3, 7)
    here = past[:, 0]
    for t in range(3):
        assert torch.allclose(past[:, t], here, atol=1e-9)
        here = compute_new_pose(here, actions[:, t])
    assert torch.allclose(here, pose, atol=1e-9)
    assert torch.allclose(previous_pose(pose, actions[:, -1]), past[:, -1])
