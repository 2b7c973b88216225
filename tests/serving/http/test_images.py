"""Images in data: URLs: formats, orientation, bounds before decoding, and damage."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.serving.http.images import ImageReader

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def url_of(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def file_of(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def png_of_size(width: int, height: int) -> bytes:
    """A file that says it is huge, and holds nothing."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IEND\xaeB`\x82"


@pytest.mark.parametrize(("kind", "form"), [("png", "PNG"), ("webp", "WEBP"), ("gif", "GIF"), ("jpeg", "JPEG")])
def test_each_format(kind: str, form: str) -> None:
    options = {"lossless": True} if form == "WEBP" else {}
    flat = np.full((6, 9, 3), 100, np.uint8)
    got = ImageReader(HttpLimits()).read(url_of(file_of(Image.fromarray(flat), form, **options), kind), "x")
    assert (got.shape, got.dtype) == ((6, 9, 3), np.uint8)
    np.testing.assert_allclose(got.astype(int), flat, atol=2)


def test_grey_and_transparent_images_become_rgb() -> None:
    for mode in ("L", "RGBA", "P", "1", "LA"):
        got = ImageReader(HttpLimits()).read(url_of(file_of(Image.new(mode, (9, 6)))), "x")
        assert got.shape == (6, 9, 3)


def test_a_camera_that_was_held_sideways() -> None:
    notes = Image.Exif()
    notes[0x0112] = 6  # turn it by 90 degrees clockwise
    got = ImageReader(HttpLimits()).read(url_of(file_of(Image.fromarray(PIXELS), exif=notes.tobytes())), "x")
    np.testing.assert_array_equal(got, np.rot90(PIXELS, -1))


@pytest.mark.parametrize("size", [(5000, 5000), (60000, 60000), (100, 10**7)])
def test_too_many_pixels_are_refused_before_they_are_decoded(size: tuple[int, int]) -> None:
    with pytest.raises(LimitExceededError, match="pixels"):
        ImageReader(HttpLimits()).read(url_of(png_of_size(*size)), "x")


def test_images_share_the_limits() -> None:
    reader = ImageReader(HttpLimits(image_pixels=100, images=2))
    reader.read(url_of(file_of(Image.fromarray(PIXELS))), "x")
    with pytest.raises(LimitExceededError, match="all images 108"):
        reader.read(url_of(file_of(Image.fromarray(PIXELS))), "x")
    with pytest.raises(LimitExceededError, match="more than 2"):
        reader.read(url_of(file_of(Image.fromarray(PIXELS))), "x")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://example.com/a.png",
        "file:///etc/passwd",
        "data:",
        "data:image/png,abc",
        "data:image/svg+xml;base64,AAAA",
        "data:text/plain;base64,AAAA",
        "data:image/png;base64,****",
        "data:image/png;base64,AAA",
        "data:image/png;base64,",
        url_of(b"not an image"),
        url_of(file_of(Image.fromarray(PIXELS))[:-60]),
        url_of(file_of(Image.fromarray(PIXELS)), "jpeg"),
        url_of(png_of_size(0, 5)),
        url_of(png_of_size(4, 5)),
    ],
)
def test_what_is_no_image(url: str) -> None:
    with pytest.raises(InvalidInputError):
        ImageReader(HttpLimits()).read(url, "x")
