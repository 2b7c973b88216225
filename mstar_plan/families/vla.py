"""Vision-language-action policies from a folder as LeRobot publishes it: pi0, pi0.5 and SmolVLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from mstar_plan.errors import ConfigError, InvalidInputError, WeightsError
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.vla_actions import FlowActions
from mstar_plan.families.vla_observation import STATE, Eyes, Images
from mstar_plan.models.vla.act_walk import Finish, act_graph
from mstar_plan.models.vla.lerobot_layout import ACTION, PolicyFiles, read_policy
from mstar_plan.models.vla.normalise import Normaliser
from mstar_plan.models.vla.pi import PiPolicy
from mstar_plan.models.vla.pi_checkpoint import fit_sizes, load_pi
from mstar_plan.models.vla.pi_config import read_pi_config
from mstar_plan.models.vla.preprocess import pi05_prompt, resize_with_pad, task_line, to_signed
from mstar_plan.models.vla.rtc import ChunkingConfig
from mstar_plan.models.vla.smolvla import SmolVLAPolicy
from mstar_plan.models.vla.smolvla_preprocess import picture_size, smolvla_images
from mstar_plan.models.vla.smolvla_weights import load_smolvla, read_smolvla_config
from mstar_plan.types import ActionSpec

MAX_TOKENIZER_BYTES = 64 * 2**20
USUAL_CAMERAS = tuple(f"observation.images.{name}_0_rgb" for name in ("base", "left_wrist", "right_wrist"))  # openpi's
USUAL_DT_S = 1 / 30  # LeRobot's usual rate; a policy's folder does not say its own
UNLIMITED = float(np.finfo(np.float32).max)


def load_vla(name: str, config: FamilyConfig) -> Servable:
    """The policy of the folder `config.weights`.

    Raises:
        ConfigError: No folder is given.
        WeightsError: A file is missing, damaged, or asks for what is not computed here; or it is another policy than
            its name in the catalogue says.
    """
    if config.weights is None:
        raise ConfigError(
            f"model {name!r} needs the folder of a published policy; give weights=FOLDER", field="weights"
        )
    files = read_policy(Path(config.weights))
    if name in ("pi0", "pi05", "smolvla") and files.kind != name:
        raise WeightsError(f"{config.weights} holds a {files.kind} policy; load it as {files.kind!r}", field="weights")
    _need_measured(files)
    device, dtype = torch.device(config.device), getattr(torch, config.dtype)
    policy: PiPolicy | SmolVLAPolicy
    if files.kind == "smolvla":
        policy = load_smolvla(read_smolvla_config(files), files.tensors, dtype)
        images = _smolvla_eyes(files)
    else:
        policy = load_pi(
            fit_sizes(read_pi_config("pi0" if files.kind == "pi0" else "pi05", files.config), files.tensors),
            files.tensors,
        )
        policy.set_dtype(dtype)
        images = pi_images(policy.config.vision.image_size, _visual(files))
    policy.to(device)
    eyes = eyes_of(files, images, policy.config.state_width, read_tokenizer(files))
    spec = action_spec(files.normalisers[ACTION], files.features[ACTION].shape[0], _names(files))
    actions = FlowActions(policy, eyes, spec, files.normalisers[ACTION], chunking_of(files.config), device)
    return vla_servable(name, actions, source=str(config.weights))


def _need_measured(files: PolicyFiles) -> None:
    """Refuses a base model: without statistics its actions would leave in no robot's units.

    Raises:
        WeightsError: Statistics are missing.
    """
    if files.unmeasured:
        raise WeightsError(
            f"the policy's folder has no statistics of {', '.join(files.unmeasured)}, so its actions would leave "
            "normalised; fine-tune it on your robot's data, or add the statistics of its normaliser",
            field="weights",
        )


def vla_servable(name: str, actions: FlowActions, *, source: str = "", description: str = "") -> Servable:
    """A policy as a family: its graph, the face of `act`, and the ability to act."""
    low, high = torch.from_numpy(actions.action.low), torch.from_numpy(actions.action.high)
    graph = act_graph(name, actions.policy, Finish(actions.normaliser.unnormalise, low, high))
    text = description or "A vision-language-action policy: what to do next, from pictures, state and a prompt."
    return Servable(name, graph, {"act": actions.face()}, text, source=source, action=actions)


def eyes_of(files: PolicyFiles, images: Images, state_width: int, tokenize: Callable[[str], Sequence[int]]) -> Eyes:
    """How a published policy looks at observations."""
    size = files.features[STATE].shape[0] if STATE in files.features else state_width
    cameras = tuple(each for each in files.cameras if ".empty_camera_" not in each) or USUAL_CAMERAS
    return Eyes(
        cameras=cameras,
        state_names=tuple(f"s{i}" for i in range(size)),
        images=images,
        words=pi05_prompt if files.kind == "pi05" else lambda prompt, _: task_line(prompt),
        tokenize=tokenize,
        most_tokens=files.tokenizer.most,
        state=files.normalisers.get(STATE, Normaliser()),
        state_width=0 if files.kind == "pi05" else state_width,
        rename=files.rename,
    )


def pi_images(side: int, normaliser: Normaliser | None = None) -> Images:
    """How pi0 and pi0.5 look at pictures: centred in a square of `side` pixels, in [-1, 1]."""

    def images(pictures: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
        made = [torch.full((3, side, side), -1.0) if each is None else one(each) for each in pictures]
        return torch.stack(made)[None], torch.tensor([[each is not None for each in pictures]])

    def one(picture: Tensor) -> Tensor:
        unit = picture / 255.0 if picture.dtype == torch.uint8 else picture
        if normaliser is not None:
            unit = normaliser.normalise(unit.permute(2, 0, 1)).permute(1, 2, 0)
        return to_signed(resize_with_pad(unit[None], side, side, rule="pi"))[0].permute(2, 0, 1)

    return images


def _smolvla_eyes(files: PolicyFiles) -> Images:
    size, visual = picture_size(files.config), _visual(files)
    return lambda pictures: smolvla_images(pictures, size, visual)


def _visual(files: PolicyFiles) -> Normaliser | None:
    rules = [files.normalisers[camera] for camera in files.cameras if camera in files.normalisers]
    return next((rule for rule in rules if rule.rule != "identity"), None)


def action_spec(normaliser: Normaliser, size: int, names: tuple[str, ...] = ()) -> ActionSpec:
    """What comes out; its limits are the training data's smallest and largest action, where the policy tells them."""
    low, high = (_stat(normaliser, name, size, sign * UNLIMITED) for name, sign in (("min", -1), ("max", 1)))
    same = low >= high  # a number that never moved
    room = np.where(same, np.maximum(1e-6, 1e-6 * np.abs(low)), 0).astype(np.float32)
    return ActionSpec(low - room, high + room, USUAL_DT_S, names)


def _stat(normaliser: Normaliser, name: str, size: int, fallback: float) -> Any:
    stat = normaliser.stats.get(name)
    if stat is None or not bool(stat.isfinite().all()) or not {"min", "max"} <= normaliser.stats.keys():
        return np.full(size, fallback, dtype=np.float32)
    return np.broadcast_to(stat.float().numpy().reshape(-1), (size,)).copy()


def _names(files: PolicyFiles) -> tuple[str, ...]:
    names = files.config.get("action_feature_names") or ()
    return tuple(str(each) for each in names) if len(names) == files.features[ACTION].shape[0] else ()


def chunking_of(config: Mapping[str, Any]) -> ChunkingConfig:
    """How a policy's chunks go on from one another: `rtc_config` and `rtc_training_max_delay` of its config.

    Raises:
        ConfigError: A setting is refused.
    """
    given = config.get("rtc_config") or {}
    usual = ChunkingConfig()
    schedule = str(given.get("prefix_attention_schedule", usual.schedule)).lower()
    return ChunkingConfig(
        given.get("mode", usual.mode),
        schedule,  # type: ignore[arg-type]  # checked there
        float(given.get("max_guidance_weight", usual.max_weight)),
        int(given.get("execution_horizon", usual.horizon)),
        int(config.get("rtc_training_max_delay", 0)),
    )


def read_tokenizer(files: PolicyFiles) -> Callable[[str], Sequence[int]]:
    """The tokenizer of a policy's folder.

    Raises:
        WeightsError: The folder has none, or it is damaged or too large.
    """
    path = files.tokenizer.file
    if path is None:
        name = files.tokenizer.name or "its tokenizer"
        what = f"{files.folder} has no tokenizer.json; this policy reads its prompt with {name}"
        raise WeightsError(f"{what}: put that one's tokenizer.json there", field="tokenizer")
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        what = f"{path} has {path.stat().st_size} bytes; at most {MAX_TOKENIZER_BYTES} are read"
        raise WeightsError(what, field="tokenizer")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise WeightsError(f"{path} is no tokenizer: {error}; copy it again", field="tokenizer") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def tokenize(text: str) -> Sequence[int]:
        ids: list[int] = tokenizer.encode(text).ids
        if not ids:
            raise InvalidInputError("the prompt has no token; say what to do", field="prompt")
        return ids

    return tokenize
