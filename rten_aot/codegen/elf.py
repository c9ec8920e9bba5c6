"""ELF files: the object that holds a model's weights, and what a finished library needs and offers.

Only what this takes: little-endian files of the four machines that the linker is asked for.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rten_aot.errors import InternalError
from rten_aot.options import Libc

Machine: TypeAlias = Literal["x86_64", "aarch64", "arm", "riscv64"]

_NUMBERS: dict[Machine, int] = {"x86_64": 62, "aarch64": 183, "arm": 40, "riscv64": 243}
# The float ABI must be that of the other objects: hard float with EABI 5, double with compression.
_FLAGS: dict[Machine, int] = {"x86_64": 0, "aarch64": 0, "arm": 0x05000400, "riscv64": 0x5}

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_DYNAMIC, _SHT_DYNSYM = 1, 2, 3, 6, 11
_SHT_GNU_VERNEED = 0x6FFFFFFE
_SHF_ALLOC, _SHF_X86_64_LARGE = 0x2, 0x10000000
_DT_NEEDED, _DT_SONAME = 1, 14
_PAGE = 4096

# Beyond this, x86-64 code could no longer reach across the weights by 32-bit offsets.
_LARGE = 1 << 30

_MAX_GLIBC: dict[Machine, tuple[int, ...]] = {
    "x86_64": (2, 17),
    "aarch64": (2, 17),
    "arm": (2, 17),
    "riscv64": (2, 27),
}
_ALLOWED_LIBRARY = re.compile(r"(libc|libm|libpthread|libdl|ld-linux[\w-]*)\.so\.\d+")
_MUSL = "libc.so"


@dataclass(frozen=True)
class _Class:
    """The layouts that differ between 32-bit and 64-bit files."""

    header: struct.Struct
    section: struct.Struct
    dynamic: struct.Struct
    symbol_bytes: int

    def symbol(self, name: int, info: int, other: int, section: int, size: int) -> bytes:
        if self.symbol_bytes == 24:
            return struct.pack("<IBBHQQ", name, info, other, section, 0, size)
        return struct.pack("<IIIBBH", name, 0, size, info, other, section)


_ELF64 = _Class(
    struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<qQ"), 24
)
_ELF32 = _Class(struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<10I"), struct.Struct("<iI"), 16)


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int = 0
    info: int = 0
    align: int = 1
    entry: int = 0


def write_weights_object(
    path: Path,
    chunks: Iterable[tuple[int, npt.NDArray[Any]]],
    total: int,
    *,
    machine: Machine,
    symbol: str = "rten_aot_weights",
) -> None:
    """Write a relocatable object that defines ``symbol``, hidden: ``total`` read-only bytes.

    ``chunks`` are arrays and their byte offsets, ascending and without overlap; the bytes between
    them are zero (and take no disk space here). Arrays are written as they come, one at a time.
    On x86-64, weights too large for its small code model go to a large section: they must then
    be reached through a 64-bit pointer, as rten_model_desc.weights is. Link the object first, so
    that it does not lie between code and other read-only data.

    Raises:
        InternalError: a chunk overlaps the one before it or lies outside of ``total``.
    """
    elf = _ELF32 if machine == "arm" else _ELF64
    large = machine == "x86_64" and total > _LARGE
    align = _PAGE if total >= 16 * _PAGE else 64
    with open(path, "wb") as file:
        write_chunks(file, chunks, total, _PAGE)
        strings = b"\0" + symbol.encode() + b"\0"
        info = (1 << 4) | 1  # STB_GLOBAL, STT_OBJECT
        symbols = bytes(elf.symbol_bytes) + elf.symbol(1, info, 2, 1, total)  # 2 = STV_HIDDEN
        sections = [
            _Section("", 0, 0, 0, 0, align=0),
            _Section(
                ".lrodata" if large else ".rodata",
                _SHT_PROGBITS,
                _SHF_ALLOC | (_SHF_X86_64_LARGE if large else 0),
                _PAGE,
                total,
                align=align,
            ),
        ]
        at = -(-(_PAGE + total) // 16) * 16
        file.seek(at)
        file.write(symbols)
        sections.append(
            _Section(".symtab", _SHT_SYMTAB, 0, at, len(symbols), 3, 1, 8, elf.symbol_bytes)
        )
        sections.append(_Section(".strtab", _SHT_STRTAB, 0, at + len(symbols), len(strings)))
        file.write(strings)
        sections.append(_Section(".note.GNU-stack", _SHT_PROGBITS, 0, file.tell(), 0))
        _write_tables(file, elf, machine, sections)


def write_chunks(
    file: BinaryIO, chunks: Iterable[tuple[int, npt.NDArray[Any]]], total: int, start: int
) -> None:
    """Write the chunks, ``total`` bytes from ``start`` on, which become the end of the file."""
    end = 0
    for offset, array in chunks:
        little = (
            array if array.dtype.byteorder != ">" else array.astype(array.dtype.newbyteorder("<"))
        )
        data = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
        if offset < end or offset + data.nbytes > total:
            raise InternalError(
                f"weights at {offset} to {offset + data.nbytes} meet those before {end}, "
                f"or the end at {total}"
            )
        end = offset + data.nbytes
        if data.nbytes:
            file.seek(start + offset)
            file.write(data.data)
    file.truncate(start + total)


def _write_tables(file: BinaryIO, elf: _Class, machine: Machine, sections: list[_Section]) -> None:
    names = b"".join(s.name.encode() + b"\0" for s in sections) + b".shstrtab\0"
    sections = [*sections, _Section(".shstrtab", _SHT_STRTAB, 0, file.tell(), len(names))]
    file.write(names)
    table = -(-file.tell() // 8) * 8
    file.seek(table)
    name_at = 0
    for s in sections:
        row = (name_at, s.kind, s.flags, 0, s.offset, s.size, s.link, s.info, s.align, s.entry)
        file.write(elf.section.pack(*row))
        name_at += len(s.name) + 1
    file.seek(0)
    ident = b"\x7fELF" + bytes([1 if elf is _ELF32 else 2, 1, 1]) + bytes(9)
    file.write(
        elf.header.pack(
            ident, 1, _NUMBERS[machine], 1, 0, 0, table, _FLAGS[machine], elf.header.size, 0, 0,
            elf.section.size, len(sections), len(sections) - 1,
        )
    )  # fmt: skip


@dataclass(frozen=True)
class Library:
    """What a shared library is for, needs and offers, from its dynamic section."""

    machine: Machine
    soname: str | None
    needed: tuple[str, ...]
    versions: tuple[str, ...]
    """Symbol versions it needs, such as ``GLIBC_2.17``."""
    exports: tuple[str, ...]
    """Defined dynamic symbols."""


def read_library(path: Path) -> Library:
    """Read the dynamic section of a shared library.

    Raises:
        ValueError: the file is not an ELF library for a machine that is known here.
    """
    with open(path, "rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(data)
        except (struct.error, IndexError, KeyError, ValueError) as err:
            raise ValueError(f"{path}: not a valid ELF library") from err


def _read(data: mmap.mmap) -> Library:
    if data[:4] != b"\x7fELF" or data[5] != 1:
        raise IndexError
    elf = _ELF64 if data[4] == 2 else _ELF32
    header = elf.header.unpack_from(data)
    machine = {number: name for name, number in _NUMBERS.items()}[header[2]]
    table, count = header[6], header[12]
    rows = [elf.section.unpack_from(data, table + i * elf.section.size) for i in range(count)]
    soname, needed, versions, exports = None, [], [], []
    for row in rows:
        kind, offset, size, link, info = row[1], row[4], row[5], row[6], row[7]
        if kind not in (_SHT_DYNAMIC, _SHT_DYNSYM, _SHT_GNU_VERNEED):
            continue
        strings = rows[link][4]
        if kind == _SHT_DYNAMIC:
            for at in range(offset, offset + size, elf.dynamic.size):
                tag, value = elf.dynamic.unpack_from(data, at)
                if tag == _DT_NEEDED:
                    needed.append(_string(data, strings + value))
                elif tag == _DT_SONAME:
                    soname = _string(data, strings + value)
        elif kind == _SHT_DYNSYM:
            exports = _defined_symbols(data, elf, offset, size, strings)
        else:
            versions = _needed_versions(data, offset, info, strings)
    return Library(machine, soname, tuple(needed), tuple(versions), tuple(exports))


def _string(data: mmap.mmap, at: int) -> str:
    return data[at : data.find(b"\0", at)].decode()


def _defined_symbols(
    data: mmap.mmap, elf: _Class, offset: int, size: int, strings: int
) -> list[str]:
    names = []
    for at in range(offset + elf.symbol_bytes, offset + size, elf.symbol_bytes):
        (name,) = struct.unpack_from("<I", data, at)
        (section,) = struct.unpack_from("<H", data, at + (6 if elf is _ELF64 else 14))
        if section != 0:
            names.append(_string(data, strings + name))
    return sorted(names)


def _needed_versions(data: mmap.mmap, offset: int, count: int, strings: int) -> list[str]:
    versions = set()
    for _ in range(count):
        _, num_aux, _, aux, following = struct.unpack_from("<HHIII", data, offset)
        at = offset + aux
        for _ in range(num_aux):
            _, _, _, name, next_aux = struct.unpack_from("<IHHII", data, at)
            versions.add(_string(data, strings + name))
            at += next_aux
        offset += following
    return sorted(versions)


def check_library(path: Path, *, symbol_prefix: str = "rten_aot", libc: Libc = "glibc") -> Library:
    """Check that a finished library runs wherever it was promised to; returns what was read.

    Raises:
        InternalError: it needs a library beyond the C library's own, or a newer version of that,
            or it exports something else than the C interface.
    """
    library = read_library(path)
    limit = _MAX_GLIBC[library.machine]
    faults = [f"needs {name}" for name in library.needed if not _is_libc(name, libc)]
    for version in library.versions:
        number = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", version)
        if number is None or tuple(map(int, number[1].split("."))) > limit:
            faults.append(f"needs symbols of {version}")
    faults += [
        f"exports {name}" for name in library.exports if not name.startswith(symbol_prefix + "_")
    ]
    if faults:
        raise InternalError(f"the linked library {', '.join(faults)}")
    return library


def _is_libc(name: str, libc: Libc) -> bool:
    return name == _MUSL if libc == "musl" else _ALLOWED_LIBRARY.fullmatch(name) is not None
