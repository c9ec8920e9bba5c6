"""What schema.fbs says, as data: the enums, unions and table layouts that drive the reader.

Only the part of the FlatBuffers schema language that schema.fbs uses is understood. Anything else
fails loudly, so that an extended schema cannot be misread.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

FieldKind: TypeAlias = Literal[
    "number", "bool", "enum", "string", "numbers", "table", "tables", "union"
]

# Scalar types by name, as little-endian struct formats.
SCALARS: Mapping[str, str] = {
    "byte": "<b",
    "ubyte": "<B",
    "ushort": "<H",
    "int": "<i",
    "int32": "<i",
    "uint": "<I",
    "uint64": "<Q",
    "float": "<f",
    "float32": "<f",
}


@dataclass(frozen=True)
class Enum:
    """A closed set of names; the position of a name is its value in a file."""

    name: str
    scalar: struct.Struct
    names: tuple[str, ...]


@dataclass(frozen=True)
class Field:
    """One field of a table.

    ``slot`` is its position in the vtable; a union's type tag sits in the slot before. ``type`` is
    a struct format for numbers, the name of an enum, table or union otherwise. ``default`` is
    what an absent field means: None for everything that is not a number, bool or enum, and for
    numbers declared ``= null``. Enum values are given by name.
    """

    name: str
    slot: int
    kind: FieldKind
    type: str
    default: int | float | str | None
    required: bool


@dataclass(frozen=True)
class Table:
    """A table's fields in file order and the number of vtable slots that they take."""

    name: str
    fields: tuple[Field, ...]
    slots: int


@dataclass(frozen=True)
class Schema:
    """Every type of the format by name. A union's tag ``n`` stands for its member ``n - 1``."""

    enums: Mapping[str, Enum]
    unions: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, Table]


@cache
def load_schema() -> Schema:
    """The schema of .rten files, read once from the schema.fbs beside this module."""
    return parse_schema(Path(__file__).with_name("schema.fbs").read_text(encoding="utf-8"))


def parse_schema(text: str) -> Schema:
    """Turn FlatBuffers schema text into layouts.

    Raises:
        ValueError: the text uses something this parser does not know.
    """
    code = re.sub(r"//[^\n]*", "", text)
    blocks = re.findall(r"\b(enum|union|table)\s+(\w+)\s*(?::\s*(\w+))?\s*\{([^}]*)\}", code)
    rest = re.sub(r"\b(enum|union|table)\b[^{]*\{[^}]*\}", "", code)
    rest = re.sub(r"\b(file_identifier|file_extension|root_type)\s+[^;]*;", "", rest)
    if rest.strip():
        raise ValueError(f"schema: cannot read {rest.strip()[:40]!r}")

    enums: dict[str, Enum] = {}
    unions: dict[str, tuple[str, ...]] = {}
    bodies: dict[str, str] = {}
    for keyword, name, base, body in blocks:
        if keyword == "table":
            bodies[name] = body
        elif keyword == "union":
            unions[name] = _members(body)
        else:
            enums[name] = Enum(name, struct.Struct(SCALARS[base]), _members(body))
    tables = {
        name: _table(name, body, enums, unions, frozenset(bodies)) for name, body in bodies.items()
    }
    return Schema(enums, unions, tables)


def _members(body: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in body.split(",") if part.strip())
    if strange := [name for name in names if not name.isidentifier()]:
        raise ValueError(f"schema: cannot read member {strange[0]!r}")
    return names


def _table(
    name: str,
    body: str,
    enums: Mapping[str, Enum],
    unions: Mapping[str, tuple[str, ...]],
    tables: frozenset[str],
) -> Table:
    fields = []
    slot = 0
    for line in filter(None, map(str.strip, body.split(";"))):
        match = re.fullmatch(
            r"(\w+)\s*:\s*(\[?)\s*(\w+)\s*\]?(?:\s*=\s*([\w.+-]+))?\s*(\(required\))?", line
        )
        if match is None:
            raise ValueError(f"schema: cannot read field {line!r} of {name}")
        field_name, bracket, base, default, required = match.groups()
        kind: FieldKind
        if base in tables:
            kind = "tables" if bracket else "table"
        elif base in SCALARS:
            base, kind = SCALARS[base], "numbers" if bracket else "number"
        elif bracket:
            raise ValueError(f"schema: cannot read field {line!r} of {name}")
        elif base in unions:
            # The type tag comes first, in a slot of its own.
            kind, slot = "union", slot + 1
        elif base in enums:
            kind = "enum"
        elif base in ("bool", "string"):
            kind = "bool" if base == "bool" else "string"
        else:
            raise ValueError(f"schema: unknown type {base!r} in {name}")
        value = _default(kind, default, base, enums)
        fields.append(Field(field_name, slot, kind, base, value, required is not None))
        slot += 1
    return Table(name, tuple(fields), slot)


def _default(
    kind: FieldKind, text: str | None, base: str, enums: Mapping[str, Enum]
) -> int | float | str | None:
    if text == "null":
        return None
    match kind:
        case "bool":
            return text == "true"
        case "enum":
            names = enums[base].names
            return names[names.index(text)] if text else names[0]
        case "number":
            return float(text or 0) if base == "<f" else int(text or 0)
        case _:
            return None
