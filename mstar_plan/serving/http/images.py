"""Images of messages: in a data: URL alone, never fetched; checked before they are decoded."""

from __future__ import annotations

import base64
import binascii
import io

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.types import ImageArray, check_image

FORMATS = {"png": "PNG", "jpeg": "JPEG", "jpg": "JPEG", "webp": "WEBP", "gif": "GIF"}


class ImageReader:
    """Reads the images of one request, which share its limits.

    Args:
        limits: How many, and how many pixels together.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._count = self._pixels = 0

    def read(self, url: str, field: str) -> ImageArray:
        """Returns the image in a data: URL as RGB [H_px, W_px, 3] uint8, as a camera's notes say it is up.

        Raises:
            InvalidInputError: The URL holds no image, or one that is damaged.
            LimitExceededError: There are too many images, or pixels.
        """
        self._count += 1
        if self._count > self._limits.images:
            raise LimitExceededError(f"there are more than {self._limits.images} images", field=field)
        kind, data = _opened(url, field)
        try:
            with Pillow.open(io.BytesIO(data), formats=[kind]) as picture:
                self._take(picture.size, field)
                upright = ImageOps.exif_transpose(picture)
                return check_image(np.array(upright.convert("RGB")), field, ndim=3)
        except (InvalidInputError, LimitExceededError):
            raise
        except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
            raise LimitExceededError(
                f"{field} is far over the limit of pixels; send it smaller", field=field
            ) from error
        except Exception as error:  # Pillow raises many kinds on damaged data, none of which may pass
            what = f"{field} is a damaged {kind} image ({len(data)} bytes)"
            raise InvalidInputError(what, field=field) from error

    def _take(self, size: tuple[int, int], field: str) -> None:
        self._pixels += size[0] * size[1]
        if self._pixels > self._limits.image_pixels:
            what = f"{field} has {size[0]} x {size[1]} pixels, and all images {self._pixels}"
            raise LimitExceededError(f"{what}; at most {self._limits.image_pixels} are taken", field=field)


def _opened(url: str, field: str) -> tuple[str, bytes]:
    """Pillow's name of the format, and the file."""
    if not url.startswith("data:"):
        shown = url.partition(":")[0][:20]
        what = f"{field} is a {shown}: address; this server fetches nothing"
        raise InvalidInputError(f"{what}: send the image itself, as data:image/png;base64,...", field=field)
    head, comma, encoded = url[5:].partition(",")
    kind, *marks = head.lower().split(";")
    form = FORMATS.get(kind.removeprefix("image/")) if kind.startswith("image/") else None
    if form is None or not comma or marks[-1:] != ["base64"]:
        known = ", ".join(sorted(FORMATS))
        what = f"{field} begins with data:{head[:60]}"
        raise InvalidInputError(f"{what}; send data:image/FORMAT;base64,... of {known}", field=field)
    try:
        return form, base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(f"{field} is not base64: {error}", field=field) from None
