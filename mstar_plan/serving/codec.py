"""Tensors and images of the wire to and from numpy; everything is checked before memory is taken for it.

Needs numpy, protobuf and Pillow alone, so that a robot's client can use it.
"""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.types import ImageArray, check_image

ImageFormat = Literal["raw", "jpeg", "png"]
AnyArray = npt.NDArray[Any]

# What may travel, by its number on the wire. bfloat16 has no numpy type: it is read as float32.
_DTYPES: dict[pb.DType, np.dtype[Any]] = {
    pb.DTYPE_BOOL: np.dtype("?"),
    pb.DTYPE_INT8: np.dtype("<i1"),
    pb.DTYPE_INT16: np.dtype("<i2"),
    pb.DTYPE_INT32: np.dtype("<i4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
    pb.DTYPE_UINT8: np.dtype("<u1"),
    pb.DTYPE_UINT16: np.dtype("<u2"),
    pb.DTYPE_UINT32: np.dtype("<u4"),
    pb.DTYPE_UINT64: np.dtype("<u8"),
    pb.DTYPE_FLOAT16: np.dtype("<f2"),
    pb.DTYPE_BFLOAT16: np.dtype("<u2"),
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_FLOAT64: np.dtype("<f8"),
}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items() if number != pb.DTYPE_BFLOAT16}


def encode_tensor(array: npt.ArrayLike, name: str = "") -> pb.Tensor:
    """Puts an array on the wire, row-major and little-endian.

    Raises:
        InvalidInputError: Its dtype is not one that travels (objects and strings never do).
    """
    value = np.asarray(array)
    little = value.dtype.newbyteorder("<")
    if little not in _NUMBERS:
        what = f"{name or 'tensor'} has dtype {value.dtype}"
        raise InvalidInputError(f"{what}; send bool, integers or floats", field=name)
    data = np.ascontiguousarray(value, dtype=little).tobytes()
    return pb.Tensor(name=name, dtype=_NUMBERS[little], shape=value.shape, data=data)


def decode_tensor(tensor: pb.Tensor, field: str, limits: ServerLimits, max_elements: int | None = None) -> AnyArray:
    """Reads an array of the wire: a writable copy in native byte order, bfloat16 as float32.

    Args:
        tensor: The message.
        field: What errors call it.
        limits: Bounds on rank and elements.
        max_elements: Another bound on elements, for images.

    Raises:
        InvalidInputError: Unknown dtype, negative side, a size that is not that of the data, NaN, infinity, or a bool
            that is neither 0 nor 1.
        LimitExceededError: Too many dimensions or elements.
    """
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        known = ", ".join(pb.DType.Name(number) for number in _DTYPES)
        raise InvalidInputError(f"{field} has dtype number {tensor.dtype}; known: {known}", field=field)
    shape = _checked_shape(tensor, field, limits.max_tensor_rank, max_elements or limits.max_tensor_elements)
    _check_size(shape, dtype.itemsize, len(tensor.data), field)
    array = np.frombuffer(tensor.data, dtype=dtype).reshape(shape)
    if tensor.dtype == pb.DTYPE_BFLOAT16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if tensor.dtype == pb.DTYPE_BOOL and (array.view(np.uint8) > 1).any():
        raise InvalidInputError(f"{field} holds bools that are neither 0 nor 1", field=field)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = int(array.size - np.isfinite(array).sum())
        what = f"{field} holds {bad} value(s) that are NaN or infinite"
        raise InvalidInputError(f"{what}; send finite numbers", field=field)
    return array.astype(array.dtype.newbyteorder("="), copy=True)


def encode_image(
    frame: ImageArray, form: ImageFormat = "raw", *, camera: str = "", quality: int = 90, name: str = "image"
) -> pb.Image:
    """Puts an RGB image [H, W, 3] uint8 on the wire.

    Args:
        frame: The image.
        form: "raw" and "png" keep every bit; "jpeg" is ten times smaller and changes pixels a little.
        camera: Name of its camera.
        quality: Of JPEG, 1 to 95.
        name: What errors call it.

    Raises:
        InvalidInputError: Not an RGB image, or an unknown form.
    """
    check_image(frame, name, ndim=3)
    if form == "raw":
        return pb.Image(raw=encode_tensor(frame), camera=camera)
    buffer = io.BytesIO()
    if form == "jpeg":
        Pillow.fromarray(frame).save(buffer, "JPEG", quality=quality)
        return pb.Image(jpeg=buffer.getvalue(), camera=camera)
    if form == "png":
        Pillow.fromarray(frame).save(buffer, "PNG", compress_level=1)
        return pb.Image(png=buffer.getvalue(), camera=camera)
    raise InvalidInputError(f"image form is {form!r}; use 'raw', 'jpeg' or 'png'", field="form")


def decode_image(image: pb.Image, field: str, limits: ServerLimits, *, taken_pixels: int = 0) -> ImageArray:
    """Reads an image of the wire as RGB [H, W, 3] uint8, writable.

    Args:
        image: The message.
        field: What errors call it.
        limits: Bounds on its size.
        taken_pixels: Pixels of the images decoded before it, which share the limit.

    Raises:
        InvalidInputError: No content, damaged or truncated data, not three channels of eight bits, an empty side, or a
            colour space that the content cannot have.
        LimitExceededError: More pixels than the limit; found from the header, before decoding.
    """
    kind = image.WhichOneof("content")
    if kind is None:
        raise InvalidInputError(f"{field} is empty; give raw, jpeg or png", field=field)
    bgr = image.colorspace == pb.COLORSPACE_BGR
    if kind != "raw":
        if bgr:
            raise InvalidInputError(f"{field} is {kind} with colour space BGR; only raw images have that", field=field)
        return _decode_file(getattr(image, kind), kind.upper(), field, limits, taken_pixels)
    if image.colorspace not in (pb.COLORSPACE_UNSPECIFIED, pb.COLORSPACE_RGB, pb.COLORSPACE_BGR):
        raise InvalidInputError(f"{field} has colour space number {image.colorspace}; known: RGB, BGR", field=field)
    if len(image.raw.shape) == 3:
        _check_pixels(image.raw.shape[0], image.raw.shape[1], taken_pixels, field, limits)
    array = decode_tensor(image.raw, field, limits, max_elements=3 * limits.max_image_pixels)
    frame = check_image(array, field, ndim=3)
    return np.ascontiguousarray(frame[..., ::-1]) if bgr else frame


def _checked_shape(tensor: pb.Tensor, field: str, max_rank: int, max_elements: int) -> tuple[int, ...]:
    if len(tensor.shape) > max_rank:
        what = f"{field} has {len(tensor.shape)} dimensions"
        raise LimitExceededError(f"{what}; max_tensor_rank is {max_rank}", field=field)
    shape = tuple(int(side) for side in tensor.shape)
    if any(side < 0 for side in shape):
        raise InvalidInputError(f"{field} has shape {list(shape)}; a side is negative", field=field)
    # A zero among huge sides makes an empty array that numpy cannot describe, so the sides are bounded one by one too.
    if max(_product(shape), *shape, 0) > max_elements:
        raise LimitExceededError(f"{field} has shape {list(shape)}; max_tensor_elements is {max_elements}", field=field)
    return shape


def _product(shape: tuple[int, ...]) -> int:
    product = 1  # Python integers do not overflow
    for side in shape:
        product *= side
    return product


def _check_size(shape: tuple[int, ...], itemsize: int, got: int, field: str) -> None:
    expected = _product(shape) * itemsize
    if got != expected:
        what = "is truncated" if got < expected else "is too long"
        raise InvalidInputError(
            f"{field} {what}: shape {list(shape)} of {itemsize} byte(s) each needs {expected} bytes, got {got}",
            field=field,
            details={"expected_bytes": str(expected), "got_bytes": str(got)},
        )


def _check_pixels(height: int, width: int, taken: int, field: str, limits: ServerLimits) -> None:
    if taken + height * width > limits.max_image_pixels:
        what = f"{field} has {height} x {width} pixels{f' after {taken} of other images' if taken else ''}"
        raise LimitExceededError(f"{what}; max_image_pixels is {limits.max_image_pixels}; send it smaller", field=field)


def _decode_file(data: bytes, form: str, field: str, limits: ServerLimits, taken: int) -> ImageArray:
    try:
        picture = Pillow.open(io.BytesIO(data), formats=[form])
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise LimitExceededError(
            f"{field} is far over max_image_pixels, which is {limits.max_image_pixels}; send it smaller", field=field
        ) from error
    except Exception as error:  # Pillow raises many kinds on damaged data, none of which may pass
        raise InvalidInputError(f"{field} is not a {form} image ({len(data)} bytes)", field=field) from error
    with picture:
        width, height = picture.size
        _check_pixels(height, width, taken, field, limits)
        if picture.mode != "RGB":
            what = f"{field} is a {form} of mode {picture.mode}"
            raise InvalidInputError(f"{what}; send three channels of eight bits, RGB", field=field)
        try:
            return check_image(np.array(picture), field, ndim=3)
        except InvalidInputError:
            raise
        except Exception as error:
            what = f"{field} is a damaged or truncated {form} image ({len(data)} bytes)"
            raise InvalidInputError(what, field=field) from error
