"""Poses of an end effector and the actions between them, batched: position, extrinsic xyz Euler angles, gripper.

The rotation of an action is applied from the left, R(new) = R(action) R(old), as in the published planner
(facebookresearch/vjepa2, notebooks/utils/mpc_utils.py), which composes row by row with SciPy; this is the same in
float64 on any device, without a round trip to the host.

Shapes: a pose and an action are [..., 7]: xyz in metres, Euler angles in radians, gripper closedness (0 open, 1
closed).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

POSE_SIZE = 7
# SciPy's limit: within this angle of +-90 degrees the outer angles are not told apart, and the last is set to zero.
GIMBAL_RADIANS = 1e-7


def compute_new_pose(pose: Tensor, action: Tensor) -> Tensor:
    """The pose after an action; the gripper stays within 0..1.

    Args:
        pose: [..., 7].
        action: [..., 7] change of position, rotation from the left, change of closedness.

    Returns:
        [..., 7] in the dtype of `pose`; Euler angles as SciPy gives them: the second in -pi/2..pi/2.
    """
    return _compose(pose, action, inverse=False)


def previous_pose(pose: Tensor, action: Tensor) -> Tensor:
    """The pose before an action, if the gripper was not at its end: the inverse of `compute_new_pose`."""
    return _compose(pose, action, inverse=True)


def past_poses(pose: Tensor, actions: Tensor) -> Tensor:
    """The poses [B, C - 1, 7] at which actions [B, C - 1, 7], oldest first, were taken to end at pose [B, 7]."""
    poses: list[Tensor] = []
    for action in reversed(actions.unbind(1)):
        poses.insert(0, previous_pose(poses[0] if poses else pose, action))
    return torch.stack(poses, 1)


def pose_difference(start: Tensor, end: Tensor) -> Tensor:
    """The action [..., 7] that leads from one pose to another, in the dtype of `start`."""
    a, b = start.double(), end.double()
    turned = rotation_matrix(b[..., 3:6]) @ rotation_matrix(a[..., 3:6]).mT
    return torch.cat([b[..., :3] - a[..., :3], euler_angles(turned), b[..., 6:] - a[..., 6:]], -1).to(start.dtype)


def _compose(pose: Tensor, action: Tensor, *, inverse: bool) -> Tensor:
    old, change = pose.double(), action.double()
    turn = rotation_matrix(change[..., 3:6])
    sign = -1.0 if inverse else 1.0
    angles = euler_angles((turn.mT if inverse else turn) @ rotation_matrix(old[..., 3:6]))
    gripper = (old[..., 6:] + sign * change[..., 6:]).clamp(0.0, 1.0)
    return torch.cat([old[..., :3] + sign * change[..., :3], angles, gripper], -1).to(pose.dtype)


def rotation_matrix(angles: Tensor) -> Tensor:
    """Rotation [..., 3, 3] of extrinsic xyz Euler angles [..., 3]: Rz(c) Ry(b) Rx(a)."""
    (sa, sb, sc), (ca, cb, cc) = angles.sin().unbind(-1), angles.cos().unbind(-1)
    rows = (
        (cc * cb, cc * sb * sa - sc * ca, cc * sb * ca + sc * sa),
        (sc * cb, sc * sb * sa + cc * ca, sc * sb * ca - cc * sa),
        (-sb, cb * sa, cb * ca),
    )
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def euler_angles(rotation: Tensor) -> Tensor:
    """Extrinsic xyz Euler angles [..., 3] of rotations [..., 3, 3]; see `GIMBAL_RADIANS` for the singular ones."""
    flat = torch.hypot(rotation[..., 0, 0], rotation[..., 1, 0])  # cosine of the second angle
    second = torch.atan2(-rotation[..., 2, 0], flat)
    locked = (math.pi / 2 - second.abs()) <= GIMBAL_RADIANS
    up = second > 0
    first = torch.atan2(rotation[..., 2, 1], rotation[..., 2, 2])
    third = torch.atan2(rotation[..., 1, 0], rotation[..., 0, 0])
    alone = torch.atan2(torch.where(up, rotation[..., 0, 1], -rotation[..., 0, 1]), rotation[..., 1, 1])
    return torch.stack(
        [torch.where(locked, alone, first), second, torch.where(locked, torch.zeros_like(third), third)], -1
    )
