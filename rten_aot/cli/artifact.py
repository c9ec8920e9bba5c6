"""The metadata of a compiled model, read without loading it."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

from rten_aot.runtime.errors import ModelLoadError

# ELF, Mach-O (64-bit), PE, WebAssembly.
_LIBRARY_MARKS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ", b"\0asm")

# The metadata is one JSON text that ends in a zero byte, and "abi" is its first key.
_START = b'{"abi":'
_LIMIT = 1 << 24


def is_library(path: Path) -> bool:
    """Whether a file is machine code, by its first bytes."""
    with open(path, "rb") as file:
        return file.read(4).startswith(_LIBRARY_MARKS)


def read_metadata(path: Path) -> dict[str, Any]:
    """What ``rten_aot_metadata()`` of the library would return.

    Raises:
        ModelLoadError: rten-aot did not make this library.
        OSError: the file cannot be read.
    """
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        at = data.find(_START)
        while at >= 0:
            end = data.find(b"\0", at, at + _LIMIT)
            if metadata := _parse(data[at : max(end, at)]):
                return metadata
            at = data.find(_START, at + 1)
    raise ModelLoadError(f"{path}: not a library that rten-aot compiled")


def _parse(text: bytes) -> dict[str, Any] | None:
    """The metadata in ``text``; None for bytes that look like its beginning."""
    try:
        metadata: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    if not {"inputs", "outputs"} <= metadata.keys():
        return None
    # A library for several CPUs has a text for each besides, which says that it is in use.
    return None if "level" in metadata.get("target", {}) else metadata
