"""Observations: keys of openpi and LeRobot, what is checked at the door, and the tensors that come of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from vla_worlds import CAMERAS, ROBOT_STATE, observation, tiny_actions

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.families.vla_observation import MAX_PROMPT, Eyes


@pytest.fixture(scope="module")
def eyes() -> Eyes:
    return tiny_actions("pi0").eyes


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("observation.images.base", CAMERAS[0]),
        ("observation/images/base", CAMERAS[0]),
        ("observation/base", CAMERAS[0]),
        ("base", CAMERAS[0]),
        ("observation/image", CAMERAS[0]),
        ("observation/exterior_image_1_left", CAMERAS[0]),
        ("observation/wrist_image", CAMERAS[1]),
        ("observation/wrist_image_left", CAMERAS[1]),
        ("observation.state", "observation.state"),
        ("observation/state", "observation.state"),
        ("state", "observation.state"),
        ("prompt", "prompt"),
        ("task", "prompt"),
    ],
)
def test_names_of_both_worlds_are_known(eyes: Eyes, key: str, name: str) -> None:
    assert eyes.name_of(key) == name


def test_renamed_keys_are_known_and_openpis_cameras_fall_back_on_the_order() -> None:
    eyes = tiny_actions("pi0").eyes
    plain = Eyes(
        ("observation.images.a", "observation.images.b"), eyes.state_names, eyes.images, eyes.words, eyes.tokenize, 8,
        eyes.state, 6, rename={"robot_cam": "observation.images.b"},
    )  # fmt: skip
    assert plain.name_of("robot_cam") == "observation.images.b"
    assert plain.name_of("observation/image") == "observation.images.a"
    assert plain.name_of("observation/wrist_image") == "observation.images.b"
    alone = Eyes(CAMERAS[:1], eyes.state_names, eyes.images, eyes.words, eyes.tokenize, 8, eyes.state, 6)
    with pytest.raises(InvalidInputError, match="wrist_image"):
        alone.name_of("observation/wrist_image")
    assert alone.fields[0].required


def test_fields_say_what_is_seen(eyes: Eyes) -> None:
    assert [(each.key, each.kind, each.required) for each in eyes.fields] == [
        (CAMERAS[0], "image", False),
        (CAMERAS[1], "image", False),
        ("observation.state", "state", True),
        ("prompt", "text", True),
    ]
    assert eyes.fields[2].names == tuple(f"joint{i}" for i in range(ROBOT_STATE))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"observation/velocity": 1.0}, "unknown key 'observation/velocity'"),
        ({"state": np.zeros(5)}, "twice"),
        ({"observation/state": np.zeros(4)}, "4 numbers; this policy needs 5"),
        ({"observation/state": np.full(5, np.nan)}, "NaN"),
        ({"observation/state": "up"}, "not numeric"),
        ({"observation/image": np.zeros((4, 4), np.uint8)}, r"\[H, W, 3\]"),
        ({"observation/image": np.zeros((0, 4, 3), np.uint8)}, r"\[H, W, 3\]"),
        ({"observation/image": np.zeros((4, 4, 3), np.int32)}, "int32"),
        ({"observation/image": np.full((4, 4, 3), 255.0)}, r"outside \[0, 1\]"),
        ({"observation/image": np.full((4, 4, 3), np.nan)}, r"outside \[0, 1\]"),
        ({"prompt": 3.0}, "as text"),
        ({"prompt": "  "}, "as text"),
    ],
)
def test_mistakes_are_told(eyes: Eyes, change: dict, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        eyes.look({**observation(), **change})


@pytest.mark.parametrize("key", ["observation/state", "prompt"])
def test_what_is_missing_is_told(eyes: Eyes, key: str) -> None:
    given = {name: value for name, value in observation().items() if name != key}
    with pytest.raises(InvalidInputError, match="lacks"):
        eyes.look(given)
    with pytest.raises(InvalidInputError, match="no picture"):
        eyes.look({name: value for name, value in observation().items() if "image" not in name})


def test_sizes_are_bounded(eyes: Eyes) -> None:
    with pytest.raises(LimitExceededError, match="characters"):
        eyes.look({**observation(), "prompt": "x" * (MAX_PROMPT + 1)})
    with pytest.raises(LimitExceededError, match="pixels"):
        eyes.look({**observation(), "observation/image": np.zeros((1, 8193, 3), np.uint8)})


def test_pictures_may_be_floats_channels_first_or_missing(eyes: Eyes) -> None:
    given = observation()
    first = eyes.tensors([eyes.look(given)])
    picture = given["observation/image"]
    for other in (picture.transpose(2, 0, 1), picture.astype(np.float32) / 255, picture[:, ::-1][:, ::-1]):
        second = eyes.tensors([eyes.look({**given, "observation/image": other})])
        torch.testing.assert_close(second["images"], first["images"])
    third = eyes.tensors([eyes.look({name: v for name, v in given.items() if name != "observation/wrist_image"})])
    assert third["image_mask"].tolist() == [[True, False]]
    assert (third["images"][0, 1] == -1).all()
    assert torch.equal(third["images"][0, 0], first["images"][0, 0])
    assert first["images"].shape == (1, 2, 3, 28, 28)
    assert first["images"].abs().max() <= 1


def test_prompts_are_filled_to_a_bucket_and_states_padded(eyes: Eyes) -> None:
    given = eyes.tensors([eyes.look(observation(prompt="go")), eyes.look(observation(1, prompt="go to the table now"))])
    assert given["tokens"].shape == (2, 32)  # 21 tokens at most
    assert given["token_mask"].sum(1).tolist() == [4, 21]  # a start, the text, the end of the line
    assert (given["tokens"][0, 4:] == 0).all()
    assert given["state"].shape == (2, 6)
    assert (given["state"][:, 5] == 0).all()
    assert eyes.tensors([eyes.look(observation(prompt="x" * 300))])["tokens"].shape == (1, 96)  # cut


def test_pi05_reads_its_state_in_the_prompt() -> None:
    eyes = tiny_actions("pi05").eyes
    still, moved = (
        eyes.tensors([eyes.look({**observation(), "observation/state": np.full(5, value, np.float32)})])
        for value in (0.0, 0.5)
    )
    assert "state" not in still
    assert not torch.equal(still["tokens"], moved["tokens"])
    text = bytes(still["tokens"][0][still["token_mask"][0]].tolist()[1:]).decode()
    assert text == "Task: pick up the cup, State: 128 128 128 128 128;\nAction: "
