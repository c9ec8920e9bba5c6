"""Takes the names inside an object away, so that objects of several models go into one program."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_SYMTAB, _RELA, _REL, _GROUP, _ADDRSIG = 2, 4, 9, 17, 0x6FFF4C03
_UNDEFINED, _LOCAL = 0, 0

_HEADER64 = np.dtype({"names": ["table", "count"], "formats": ["<u8", "<u2"], "offsets": [40, 60]})
_HEADER32 = np.dtype({"names": ["table", "count"], "formats": ["<u4", "<u2"], "offsets": [32, 48]})
_FIELDS = ["name", "kind", "flags", "address", "offset", "size", "link", "info", "align", "entry"]
_SECTION64 = np.dtype(
    list(zip(_FIELDS, "<u4 <u4 <u8 <u8 <u8 <u8 <u4 <u4 <u8 <u8".split(), strict=True))
)
_SECTION32 = np.dtype([(field, "<u4") for field in _FIELDS])
_SYMBOL64 = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8", 2)]
)
_SYMBOL32 = np.dtype(
    [("name", "<u4"), ("value", "<u4", 2), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
)


def localize(path: Path, keep: Set[str]) -> None:
    """Make every symbol that a relocatable ELF object defines local, but for those in ``keep``.

    What ``ld -r`` cannot do, and ``objcopy --keep-global-symbols`` does.
    """
    data = np.memmap(path, np.uint8, "r+")
    is_64 = bool(data[4] == 2)
    (header,) = _rows(data, _HEADER64 if is_64 else _HEADER32, 0, 1)
    table = _SECTION64 if is_64 else _SECTION32
    sections = _rows(data, table, int(header["table"]), int(header["count"]))
    (number,) = np.flatnonzero(sections["kind"] == _SYMTAB)
    symtab = sections[number]
    order = _localized(data, sections, symtab, keep, is_64)
    for section in sections:
        if section["kind"] in (_REL, _RELA) and section["link"] == number:
            _renumber(data, section, order, is_64)
        elif section["kind"] == _GROUP and section["link"] == number:
            section["info"] = order[section["info"]]
        elif section["kind"] == _ADDRSIG:
            section["size"] = 0  # a hint that lists symbols by number
    data.flush()


def _rows(
    data: npt.NDArray[np.uint8], kind: np.dtype[Any], offset: int, count: int
) -> npt.NDArray[Any]:
    width = kind.itemsize
    padded = data[offset : offset + width * count]
    return padded.view(kind)


def _localized(
    data: npt.NDArray[np.uint8],
    sections: npt.NDArray[Any],
    symtab: Any,
    keep: Set[str],
    is_64: bool,
) -> npt.NDArray[np.uint32]:
    """Rewrite the symbols, local ones first; returns the new numbers by the old ones."""
    kind = _SYMBOL64 if is_64 else _SYMBOL32
    symbols = _rows(data, kind, int(symtab["offset"]), int(symtab["size"]) // kind.itemsize)
    names = int(sections[int(symtab["link"])]["offset"])
    local = symbols["info"] >> 4 == _LOCAL
    for index in np.flatnonzero(~local & (symbols["section"] != _UNDEFINED)):
        if _text(data, names + int(symbols["name"][index])) not in keep:
            symbols["info"][index] &= 0xF
            symbols["other"][index] = 0
            local[index] = True
    old = np.concatenate([np.flatnonzero(local), np.flatnonzero(~local)])
    symbols[:] = symbols[old]
    symtab["info"] = np.count_nonzero(local)
    order = np.empty(len(old), np.uint32)
    order[old] = np.arange(len(old), dtype=np.uint32)
    return order


def _text(data: npt.NDArray[np.uint8], at: int) -> str:
    end = at
    while data[end]:
        end += 1
    return bytes(data[at:end]).decode()


def _renumber(
    data: npt.NDArray[np.uint8], section: Any, order: npt.NDArray[np.uint32], is_64: bool
) -> None:
    """Make relocations name their symbols by the new numbers."""
    word = np.dtype("<u8" if is_64 else "<u4")
    shift = word.type(32 if is_64 else 8)
    words = 3 if section["kind"] == _RELA else 2
    start = int(section["offset"])
    entries = data[start : start + int(section["size"])].view(word).reshape(-1, words)
    info = entries[:, 1]
    kinds = info & word.type((1 << int(shift)) - 1)
    entries[:, 1] = order[info >> shift].astype(word) << shift | kinds
