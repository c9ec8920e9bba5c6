"""Where the model data and the tensor data lie inside a .rten file."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from ..errors import ModelFormatError
from .tables import NEWER

_MAGIC = b"RTEN"
# ELF, WebAssembly.
_LIBRARIES = (b"\x7fELF", b"\0asm")
_HEADER = struct.Struct("<4sIQQQ")


@dataclass(frozen=True)
class Container:
    """The two segments of a file; a version 1 file has no tensor data of its own.

    ``marked`` says whether the file carries the RTEN mark. Version 1 files need not: rten-convert
    writes them without the FlatBuffers identifier.
    """

    version: Literal["rten-v1", "rten-v2"]
    marked: bool
    model: memoryview
    tensors: memoryview | None


def open_container(data: memoryview) -> Container:
    """Split the bytes of a file into its segments, without looking into them.

    Raises:
        ModelFormatError: the file is too short, of another version, or its segments lie outside.
    """
    if len(data) < 8:
        what = "is empty" if len(data) == 0 else f"has only {len(data)} bytes"
        raise ModelFormatError(f"the file {what}")
    if data[:4] in _LIBRARIES:
        raise ModelFormatError(
            "not a .rten model, but machine code, as rten-aot compile writes it",
            hint="name the model that it was compiled from",
        )
    if data[:4] != _MAGIC:
        return Container("rten-v1", data[4:8] == _MAGIC, data, None)
    if len(data) < _HEADER.size:
        raise ModelFormatError(f"the file ends inside its header, after {len(data)} bytes")
    _, version, model_offset, model_len, tensor_offset = _HEADER.unpack_from(data)
    if version != 2:
        raise ModelFormatError(
            f'header version "{version}" is not supported; supported: 2',
            hint=NEWER,
        )
    size = len(data)
    if model_offset < _HEADER.size or model_offset > size or model_len > size - model_offset:
        raise ModelFormatError(
            f"the header puts {model_len} bytes of model data at byte {model_offset} of a file of "
            f"{size} bytes"
        )
    if model_len < 8:
        raise ModelFormatError(f"the model data has only {model_len} bytes")
    if tensor_offset > size:
        raise ModelFormatError(
            f"the header puts the tensor data at byte {tensor_offset} of a file of {size} bytes"
        )
    model = data[model_offset : model_offset + model_len]
    return Container("rten-v2", True, model, data[tensor_offset:])
