"""Recognise a handwritten digit with a compiled library; needs NumPy and rten-aot, no compiler.

rten-aot compile examples/digits/digits.rten -o digits.so --target llvm -mcpu=native
python examples/digits/classify.py digits.so examples/digits/seven.pgm
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

import rten_aot

SHADES = " .:-=+*#%@"
SIZE = 8


def read_pgm(path: Path) -> npt.NDArray[np.float32]:
    """Read a binary PGM picture of 8 bits per pixel as values in 0..1.

    Raises:
        ValueError: the file is of another kind, or cut short.
    """
    data = path.read_bytes()
    header = re.match(rb"P5(?:\s+|#.*\n)+(\d+)(?:\s+|#.*\n)+(\d+)(?:\s+|#.*\n)+(\d+)\s", data)
    if header is None:
        raise ValueError(f"{path} is not a binary PGM picture")
    width, height, white = (int(field) for field in header.groups())
    pixels = np.frombuffer(data, np.uint8, offset=header.end())
    if not 0 < white < 256 or len(pixels) < width * height:
        raise ValueError(f"{path} is not a PGM picture of 8 bits per pixel, or is cut short")
    grey = pixels[: width * height].reshape(height, width)
    return np.asarray(grey / np.float32(white), dtype=np.float32)


def shrink(picture: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Average a picture down to the 8x8 pixels that the network looks at.

    Raises:
        ValueError: a side is no multiple of 8.
    """
    height, width = picture.shape
    if height % SIZE or width % SIZE or not picture.size:
        raise ValueError(f"the picture is {width}x{height}; its sides must be multiples of {SIZE}")
    blocks = picture.reshape(SIZE, height // SIZE, SIZE, width // SIZE)
    return np.asarray(blocks.mean(axis=(1, 3)), dtype=np.float32)


def as_text(picture: npt.NDArray[np.float32]) -> str:
    """Draw a picture with characters, two for each pixel since they are taller than wide."""
    levels = np.rint(picture * (len(SHADES) - 1)).astype(int)
    return "\n".join("".join(2 * SHADES[level] for level in row) for row in levels)


def main() -> None:
    """Show the picture, the digit the network takes it for, and the probability of every digit."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("library", type=Path, help="the compiled network, such as digits.so")
    parser.add_argument("picture", type=Path, help="PGM file: bright strokes on a dark ground")
    arguments = parser.parse_args()
    try:
        picture = shrink(read_pgm(arguments.picture))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    model = rten_aot.load(arguments.library)
    chances = model.run({"input": picture[None, None]})["probabilities"][0]
    print(as_text(picture))
    print(f"\nThis is a {chances.argmax()}.\n")
    for digit, chance in enumerate(chances):
        print(f"{digit}  {chance:6.1%}  {'#' * round(40 * float(chance))}".rstrip())


if __name__ == "__main__":
    main()
