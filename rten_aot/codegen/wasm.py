"""WebAssembly files: the object that holds a model's weights, and what a module needs and offers.

The format of objects is that of https://github.com/WebAssembly/tool-conventions (Linking.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rten_aot.codegen.elf import write_chunks
from rten_aot.errors import InternalError

MAGIC = b"\0asm\1\0\0\0"

_CUSTOM, _IMPORT, _EXPORT, _DATA = 0, 2, 7, 11
_SEGMENT_INFO, _SYMBOL_TABLE = 5, 8
_SYMBOL_DATA, _SYMBOL_HIDDEN = 1, 4
_FUNCTION, _TABLE, _MEMORY, _GLOBAL = 0, 1, 2, 3
_ALIGNMENT_BITS = 6

# What a module may need: the clock, of libraries that time their steps.
_CLOCK = "wasi_snapshot_preview1.clock_time_get"
_ALLOCATOR = frozenset({"memory", "malloc", "free", "_initialize"})


def write_weights_object(
    path: Path,
    chunks: Iterable[tuple[int, npt.NDArray[Any]]],
    total: int,
    *,
    symbol: str = "rten_aot_weights",
) -> None:
    """Write a relocatable object that defines ``symbol``, hidden: ``total`` bytes.

    ``chunks`` are as for ``elf.write_weights_object``.

    Raises:
        InternalError: a chunk overlaps the one before it or lies outside of ``total``.
    """
    name = _name(".rodata." + symbol)
    memory = _name("env") + _name("__linear_memory") + bytes([_MEMORY, 0]) + _number(1)
    # One segment at address 0, which the linker moves: i32.const 0, end.
    segment = _number(1) + bytes([0, 0x41, 0, 0x0B]) + _number(total)
    info = _number(1) + name + _number(_ALIGNMENT_BITS) + _number(0)
    symbols = _number(1) + bytes([_SYMBOL_DATA, _SYMBOL_HIDDEN])
    symbols += _name(symbol) + _number(0) + _number(0) + _number(total)
    linking = _name("linking") + _number(2)
    linking += _section(_SEGMENT_INFO, info) + _section(_SYMBOL_TABLE, symbols)
    head = MAGIC + _section(_IMPORT, _number(1) + memory)
    head += bytes([_DATA]) + _number(len(segment) + total) + segment
    with open(path, "wb") as file:
        file.write(head)
        write_chunks(file, chunks, total, len(head))
        file.seek(len(head) + total)
        file.write(_section(_CUSTOM, linking))


def _number(value: int) -> bytes:
    """LEB128 without sign."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _name(text: str) -> bytes:
    return _number(len(text.encode())) + text.encode()


def _section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + _number(len(content)) + content


@dataclass(frozen=True)
class Module:
    """What a module says of itself."""

    imports: tuple[str, ...]
    """As ``module.name``."""
    exports: tuple[str, ...]


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def name(self) -> str:
        length = self.number()
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def skip_type(self, kind: int) -> None:
        """What an import says besides its kind."""
        if kind == _FUNCTION:
            self.number()
        elif kind == _GLOBAL:
            self.at += 2
        else:
            self.at += 1 if kind == _TABLE else 0
            limits = self.number()
            self.number()
            if limits & 1:
                self.number()


def read_module(path: Path) -> Module:
    """Read imports and exports of a module.

    Raises:
        ValueError: the file is no module.
    """
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise ValueError(f"{path}: not a WebAssembly module")
    imports: list[str] = []
    exports: list[str] = []
    try:
        for kind, reader in _sections(data):
            if kind == _IMPORT:
                for _ in range(reader.number()):
                    imports.append(f"{reader.name()}.{reader.name()}")
                    reader.skip_type(reader.number())
            elif kind == _EXPORT:
                for _ in range(reader.number()):
                    exports.append(reader.name())
                    reader.number()
                    reader.number()
    except (IndexError, UnicodeDecodeError) as err:
        raise ValueError(f"{path}: not a WebAssembly module") from err
    return Module(tuple(imports), tuple(sorted(exports)))


def _sections(data: bytes) -> Iterator[tuple[int, _Reader]]:
    reader = _Reader(data, len(MAGIC))
    while reader.at < len(data):
        kind = reader.number()
        size = reader.number()
        yield kind, _Reader(data, reader.at)
        reader.at += size


def check_module(path: Path, *, symbol_prefix: str, profile: bool) -> Module:
    """Check that a finished module runs wherever it was promised to; returns what was read.

    Raises:
        InternalError: it needs something of whoever loads it (but for a clock, with ``profile``),
            or exports something else than the C interface and its memory.
    """
    module = read_module(path)
    faults = [f"needs {name}" for name in module.imports if not (profile and name == _CLOCK)]
    faults += [f"lacks {name}" for name in sorted(_ALLOCATOR - set(module.exports))]
    faults += [
        f"exports {name}"
        for name in module.exports
        if name not in _ALLOCATOR and not name.startswith(symbol_prefix + "_")
    ]
    if faults:
        raise InternalError(f"the linked module {', '.join(faults)}")
    return module
