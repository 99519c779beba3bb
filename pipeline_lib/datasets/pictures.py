"""One picture from a file: PGM by an own strict reader, everything else by pillow (extra ``images``)."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.datasets.reading import PathLike, existing_file
from pipeline_lib.errors import InputError

#: Larger pictures are refused: a few bytes can claim any size.
MAX_PIXELS = 2**27

_SPACE = rb"(?:[ \t\n\v\f\r]|#[^\n\r]*[\n\r])"
_PGM_HEADER = re.compile(
    rb"(P[25])" + 3 * (rb"%s++(\d{1,9})" % _SPACE) + rb"([ \t\n\v\f\r]|#[^\n\r]*[\n\r])"
)


def read_pgm(path: PathLike) -> NDArray[Any]:
    """Read a grey picture in Netpbm's PGM format, ASCII (P2) or binary (P5).

    Returns
    -------
    ndarray of shape (height, width)
        uint8 for up to 255 grey levels, else uint16; values as in the file, not rescaled.

    Raises
    ------
    InputError
        A malformed header, a value above the declared maximum, or another number of pixels than
        declared, with the byte or pixel where it stands.
    """
    path = existing_file(path)
    return _parse_pgm(path.read_bytes(), path)


def _parse_pgm(raw: bytes, path: Path) -> NDArray[Any]:
    match = _PGM_HEADER.match(raw)
    if match is None:
        raise InputError(
            "no PGM header",
            path=path,
            line=1,
            expected="P2 or P5, width, height and largest value",
        )
    width, height, largest = (int(match[i]) for i in (2, 3, 4))
    if not (0 < width * height <= MAX_PIXELS and 0 < largest < 65536):
        raise InputError(
            f"a picture of {width} x {height} with values up to {largest}",
            path=path,
            expected="a positive size and values up to 65535",
        )
    if match[1] == b"P5":
        # Two bytes a pixel, the high one first, when one is not enough.
        kind = np.dtype(np.uint8) if largest < 256 else np.dtype(">u2")
        start, wanted = match.end(), width * height * kind.itemsize
        left = len(raw) - start
        if left < wanted or raw[start + wanted :].strip():
            raise InputError(
                f"{left} bytes of pixels after byte {start}",
                path=path,
                expected=f"{wanted} for {width} x {height}",
            )
        pixels: NDArray[Any] = np.frombuffer(raw, kind, count=width * height, offset=start)
    else:
        words = re.sub(rb"#[^\n\r]*", b"", raw[match.end() - 1 :]).split()
        if len(words) != width * height:
            raise InputError(
                f"{len(words)} pixels", path=path, expected=f"{width * height} ({width} x {height})"
            )
        wrong = next((i for i, w in enumerate(words) if not w.isdigit() or len(w) > 6), None)
        if wrong is not None:
            raise InputError(
                f"pixel {wrong + 1} is {words[wrong][:20]!r}", path=path, expected="a whole number"
            )
        pixels = np.array(words, dtype=np.int64)
    if pixels.max() > largest:
        at = int(np.argmax(pixels > largest))
        raise InputError(
            f"pixel {at + 1} is {pixels[at]}", path=path, expected=f"at most {largest}"
        )
    return pixels.astype(np.uint8 if largest < 256 else np.uint16).reshape(height, width)


def write_pgm(
    path: PathLike, pixels: ArrayLike, *, ascii: bool = False, largest: int | None = None
) -> None:
    """Write a grey picture as binary (P5) or ASCII (P2) PGM; more than 8 bits when needed."""
    pixels = np.asarray(pixels)
    if largest is None:
        largest = 255 if pixels.max(initial=0) < 256 else 65535
    height, width = pixels.shape
    header = f"P{2 if ascii else 5}\n{width} {height}\n{largest}\n".encode()
    if ascii:
        body = "".join(" ".join(map(str, row)) + "\n" for row in pixels.tolist()).encode()
    else:
        body = pixels.astype(np.uint8 if largest < 256 else ">u2").tobytes()
    Path(path).write_bytes(header + body)


def read_picture(path: PathLike) -> NDArray[Any]:
    """Read any picture: grey (height, width) or colour (height, width, 3), upright.

    Returns
    -------
    ndarray of uint8, or uint16 for grey pictures of more than 8 bits
        Palettes are resolved, transparency is laid on black, the orientation that a camera stored is
        applied.

    Raises
    ------
    InputError
        The file is damaged, cut, too large, or of a kind that pillow does not read.
    """
    path = existing_file(path)
    raw = path.read_bytes()
    if raw[:2] in (b"P2", b"P5"):
        return _parse_pgm(raw, path)
    image_module, ops = _pillow(path)
    try:
        with image_module.open(io.BytesIO(raw)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise InputError(f"a picture of {image.width} x {image.height}", path=path)
            image.load()
            image = ops.exif_transpose(image)
            if image.mode in ("1", "L", "LA"):
                return np.asarray(image.convert("L"))
            if image.mode.startswith("I;16") or image.mode == "I":
                values = np.asarray(image, dtype=np.int64)
                return np.clip(values, 0, 65535).astype(np.uint16)
            if image.mode == "P" and "transparency" not in image.info:
                return _grey_if_grey(np.asarray(image.convert("RGB")))
            if image.mode in ("RGBA", "P", "PA"):
                image = image.convert("RGBA")
                ground = image_module.new("RGBA", image.size, (0, 0, 0, 255))
                image = image_module.alpha_composite(ground, image)
            return np.asarray(image.convert("RGB"))
    except InputError:
        raise
    except Exception as error:
        # pillow's decoders raise many kinds for a damaged picture; of one it does not know, it names
        # the buffer.
        why = "" if "BytesIO" in str(error) else f" ({error})"
        raise InputError(
            f"cannot be read as a picture{why}",
            path=path,
            expected="PGM, PNG, JPEG or another format that pillow reads",
        ) from None


def _grey_if_grey(pixels: NDArray[Any]) -> NDArray[Any]:
    """GIF has no grey mode: a palette of greys (as Yale's faces have) is a grey picture."""
    first = pixels[..., 0]
    return first if (pixels == first[..., None]).all() else pixels


def to_grey(pixels: NDArray[Any]) -> NDArray[Any]:
    """Luminance (ITU-R BT.601) of a colour picture; a grey one as it is."""
    if pixels.ndim == 2:
        return pixels
    return np.round(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)


def resize(pixels: NDArray[Any], size: tuple[int, int], path: PathLike = "picture") -> NDArray[Any]:
    """Resample to (height, width) with an antialiased bicubic filter; type and range are kept."""
    if pixels.shape[:2] == tuple(size):
        return pixels
    image_module, _ = _pillow(path)
    if pixels.dtype == np.uint8:
        image = image_module.fromarray(pixels)
        return np.asarray(image.resize((size[1], size[0]), image_module.Resampling.BICUBIC))
    image = image_module.fromarray(pixels.astype(np.float32))
    values = np.asarray(image.resize((size[1], size[0]), image_module.Resampling.BICUBIC))
    return np.clip(np.round(values), 0, np.iinfo(pixels.dtype).max).astype(pixels.dtype)


def _pillow(path: PathLike) -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputError(
            "reading and resizing pictures needs pillow",
            path=path,
            remedy="install affinity-bench with the extra images: pip install 'affinity-bench[images]'",
        ) from None
    return Image, ImageOps
