"""Tensors and images: exact both ways, and every damage is told before memory is taken for it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image as Pillow

from mstar_plan.errors import InvalidInputError, LimitExceededError, MStarError
from mstar_plan.serving.codec import decode_image, decode_tensor, encode_image, encode_tensor
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb

LIMITS = ServerLimits()
DTYPES = ["?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", ">f4", ">i2"]
PICTURE = np.arange(12 * 8 * 3, dtype=np.uint8).reshape(12, 8, 3)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_tensors_come_back_as_they_were(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    elements = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    array = data.draw(
        hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=4, max_side=4), elements=hnp.from_dtype(dtype, **elements)
        )
    )
    back = decode_tensor(encode_tensor(array, "x"), "x", LIMITS)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable
    assert back.dtype.isnative


def test_bfloat16_is_read_as_float32() -> None:
    bits = np.array([0x3F80, 0xC000], "<u2")  # 1.0, -2.0
    tensor = pb.Tensor(dtype=pb.DTYPE_BFLOAT16, shape=[2], data=bits.tobytes())
    np.testing.assert_array_equal(decode_tensor(tensor, "x", LIMITS), np.array([1.0, -2.0], np.float32))


@pytest.mark.parametrize(
    ("tensor", "kind", "words"),
    [
        (pb.Tensor(dtype=99, shape=[1], data=b"0"), InvalidInputError, "dtype number 99"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[2], data=b"1234"), InvalidInputError, "truncated"),
        (pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[1], data=b"1234"), InvalidInputError, "too long"),
        (pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[-1, -4], data=b"1234"), InvalidInputError, "negative"),
        (pb.Tensor(dtype=pb.DTYPE_BOOL, shape=[1], data=b"\x07"), InvalidInputError, "neither 0 nor 1"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[1], data=np.float32(np.nan).tobytes()), InvalidInputError, "NaN"),
        (pb.Tensor(dtype=pb.DTYPE_FLOAT64, shape=[1], data=np.float64(np.inf).tobytes()), InvalidInputError, "NaN"),
        (pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[2**40, 2**40], data=b""), LimitExceededError, "max_tensor_elements"),
        (pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[0, 2**62], data=b""), LimitExceededError, "max_tensor_elements"),
        (pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[1] * 9, data=b"1"), LimitExceededError, "max_tensor_rank"),
    ],
)
def test_damaged_tensors_are_told(tensor: pb.Tensor, kind: type[MStarError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        decode_tensor(tensor, "field.name", LIMITS)
    assert caught.value.field == "field.name"


@pytest.mark.parametrize("value", [np.array(["text"]), np.array([object()]), np.array([1j])])
def test_other_dtypes_do_not_travel(value: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="dtype"):
        encode_tensor(value, "x")


@pytest.mark.parametrize("form", ["raw", "png"])
def test_lossless_images(form: str) -> None:
    back = decode_image(encode_image(PICTURE, form), "image", LIMITS)
    np.testing.assert_array_equal(back, PICTURE)
    assert back.flags.writeable


def test_jpeg_is_near() -> None:
    smooth = np.tile(np.linspace(0, 255, 64, dtype=np.uint8)[:, None, None], (1, 64, 3))
    back = decode_image(encode_image(smooth, "jpeg"), "image", LIMITS)
    assert np.abs(back.astype(int) - smooth).max() < 12


def test_bgr_is_turned() -> None:
    image = encode_image(PICTURE)
    image.colorspace = pb.COLORSPACE_BGR
    np.testing.assert_array_equal(decode_image(image, "image", LIMITS), PICTURE[..., ::-1])


def saved(picture: Pillow.Image, form: str) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (pb.Image(), "give raw, jpeg or png"),
        (pb.Image(jpeg=b"not a picture"), "not a JPEG"),
        (pb.Image(png=encode_image(PICTURE, "jpeg").jpeg), "not a PNG"),
        (pb.Image(png=encode_image(PICTURE, "png").png[:-40]), "truncated"),
        (pb.Image(png=saved(Pillow.new("L", (4, 4)), "PNG")), "mode L"),
        (pb.Image(raw=encode_tensor(np.zeros((4, 4), np.uint8))), "shape"),
        (pb.Image(raw=encode_tensor(np.zeros((4, 4, 3), np.float32))), "uint8"),
        (pb.Image(raw=encode_tensor(np.zeros((0, 4, 3), np.uint8))), "empty"),
        (pb.Image(png=encode_image(PICTURE, "png").png, colorspace=pb.COLORSPACE_BGR), "BGR"),
    ],
)
def test_damaged_images_are_told(image: pb.Image, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        decode_image(image, "image", LIMITS)


def test_a_bomb_is_refused_from_its_header() -> None:
    bomb = saved(Pillow.new("RGB", (3000, 3000)), "PNG")
    assert len(bomb) < 100_000
    with pytest.raises(LimitExceededError, match="max_image_pixels"):
        decode_image(pb.Image(png=bomb), "image", LIMITS)


def test_images_of_one_observation_share_the_limit() -> None:
    with pytest.raises(LimitExceededError, match="of other images"):
        decode_image(encode_image(PICTURE), "image", ServerLimits(max_image_pixels=100), taken_pixels=50)


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200), st.sampled_from(["jpeg", "png"]))
def test_random_bytes_never_pass(data: bytes, form: str) -> None:
    with pytest.raises(MStarError):
        decode_image(pb.Image(**{form: data}), "image", LIMITS)
