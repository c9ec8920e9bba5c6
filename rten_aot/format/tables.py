"""FlatBuffers tables read with every offset, length and enum value checked first.

The walker trusts no byte of the buffer. It reads one table at a time and gives sub-tables as
positions, so that the caller decides how deep to go; number vectors are views, never copies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ModelFormatError
from .schema import Field, Schema, Table

NEWER = "the file may come from a newer RTen; convert the model with rten-convert 0.22"

# Values by kind: int, float, bool, str, None, numpy view, Ref, Refs. Which one is the schema's
# word, field by field, beyond what a static type could say.
Record: TypeAlias = dict[str, Any]

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_NUMBERS = {code: struct.Struct(code) for code in ("<b", "<B", "<H", "<i", "<I", "<Q", "<f")}

# A vtable of a later schema may be longer than ours, but not without bound.
_MAX_NEW_FIELDS = 64

# What is read may take this much memory beyond the size of the file. Shared sub-tables make it
# possible to describe far more objects than the file has bytes.
_FREE_MEMORY = 40_000_000

# Tables whose unknown fields can be passed over: they describe the model and decide nothing.
_OPEN_TABLES = frozenset({"Metadata", "ValueNode", "Dim"})


class NewerFormatError(ModelFormatError):
    """The file uses what the schema does not have."""


class Damaged(Exception):
    """The buffer does not follow the schema. The caller adds where in the model that is."""

    def __init__(
        self, reason: str, *, table: str = "", newer: bool = False, value: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.table = table
        self.field = ""
        self.newer = newer
        self.value = value
        self.partial: Record = {}

    def located(self, node: str | None = None, op: str | None = None) -> ModelFormatError:
        """The error to show, with the node it was met in."""
        in_attrs = self.table.endswith("Attrs")
        place = "" if in_attrs else ".".join(filter(None, (self.table, self.field)))
        kind = NewerFormatError if self.newer else ModelFormatError
        return kind(
            f"{place}: {self.reason}" if place else self.reason,
            node=node,
            op=op,
            attr=self.field if in_attrs and self.field else None,
            hint=NEWER if self.newer else None,
        )


class Ref(NamedTuple):
    """A sub-table that has not been read yet."""

    table: Table
    pos: int


class Refs(NamedTuple):
    """A vector of sub-tables that have not been read yet."""

    table: Table
    pos: int
    offsets: npt.NDArray[np.uint32]


class Tables:
    """Checked access to one FlatBuffers buffer in a file of ``file_size`` bytes."""

    def __init__(self, schema: Schema, data: memoryview, file_size: int) -> None:
        self._schema = schema
        self._data = data
        self._size = len(data)
        self._budget = _FREE_MEMORY + file_size

    def root(self, table: Table) -> Ref:
        """The buffer's outermost table."""
        return Ref(table, self._follow(0))

    def charge(self, cost: int) -> None:
        """Account for ``cost`` bytes of memory that the caller is about to keep.

        Raises:
            Damaged: more was asked for than a file of this size can need.
        """
        self._budget -= cost
        if self._budget < 0:
            raise Damaged("the structure is too large for a file of this size")

    def read(self, ref: Ref) -> Record:
        """Every field of a table by its schema name, absent ones at their default.

        Raises:
            Damaged: the bytes do not follow the schema, or use what it does not have.
        """
        table, pos = ref
        self.charge(32)
        slots, end = self._slots(table, pos)
        record: Record = {}
        for field in table.fields:
            offset = slots[field.slot] if field.slot < len(slots) else 0
            try:
                if field.kind == "union":
                    record[field.name] = self._union(field, slots, pos, end)
                elif offset:
                    record[field.name] = self._value(field, pos + offset, end)
                elif field.required:
                    raise Damaged("required, but absent")
                else:
                    record[field.name] = field.default
            except Damaged as err:
                if not err.table:
                    err.table, err.field, err.partial = table.name, field.name, record
                raise
        return record

    def each(self, refs: Refs) -> Iterator[Ref]:
        """The members of a vector of tables, one after the other."""
        for index in range(len(refs.offsets)):
            yield Ref(refs.table, self._follow(refs.pos + 4 * index))

    def _follow(self, pos: int) -> int:
        """The target of the forward offset at ``pos``, with room for four bytes there."""
        if pos + 4 > self._size:
            raise Damaged(f"offset at byte {pos} lies past the end of the model data")
        target: int = pos + _U32.unpack_from(self._data, pos)[0]
        if target + 4 > self._size:
            raise Damaged(f"offset at byte {pos} points past the end of the model data")
        return target

    def _slots(self, table: Table, pos: int) -> tuple[tuple[int, ...], int]:
        """The known part of a table's vtable, and where the table's own bytes end."""
        vtable = pos - _I32.unpack_from(self._data, pos)[0]
        if not 0 <= vtable <= self._size - 4:
            raise Damaged(f"vtable of the table at byte {pos} is out of range", table=table.name)
        size, extent = struct.unpack_from("<HH", self._data, vtable)
        if size < 4 or size % 2 or vtable + size > self._size:
            raise Damaged(f"vtable at byte {vtable} has a bad size of {size}", table=table.name)
        if extent < 4 or pos + extent > self._size:
            raise Damaged(f"table at byte {pos} has a bad size of {extent}", table=table.name)
        count = size // 2 - 2
        if count > table.slots:
            self._refuse_new_fields(table, vtable, count)
        known = min(count, table.slots)
        slots = struct.unpack_from(f"<{known}H", self._data, vtable + 4)
        return slots, pos + extent

    def _refuse_new_fields(self, table: Table, vtable: int, count: int) -> None:
        if count > table.slots + _MAX_NEW_FIELDS:
            raise Damaged(f"vtable at byte {vtable} has {count} fields", table=table.name)
        if table.name in _OPEN_TABLES:
            return
        for slot in range(table.slots, count):
            if _U16.unpack_from(self._data, vtable + 4 + 2 * slot)[0]:
                raise Damaged(f"field number {slot} is not known", table=table.name, newer=True)

    def _value(self, field: Field, pos: int, end: int) -> object:
        match field.kind:
            case "number":
                return self._number(_NUMBERS[field.type], pos, end)
            case "bool":
                if (byte := self._number(_NUMBERS["<B"], pos, end)) > 1:
                    raise Damaged(f'value "{byte}" is not a bool')
                return byte == 1
            case "enum":
                enum = self._schema.enums[field.type]
                value = int(self._number(enum.scalar, pos, end))
                if value >= len(enum.names):
                    known = f"; known: {', '.join(enum.names)}" if len(enum.names) < 10 else ""
                    raise Damaged(f'value "{value}" is not known{known}', newer=True, value=value)
                return enum.names[value]
        if pos + 4 > end:
            raise Damaged(f"offset at byte {pos} lies outside its table")
        target = self._follow(pos)
        match field.kind:
            case "string":
                return self._string(target)
            case "numbers":
                return self._numbers(np.dtype(field.type), target)
            case "tables":
                offsets = self._numbers(np.dtype("<u4"), target)
                return Refs(self._schema.tables[field.type], target + 4, offsets)
        return Ref(self._schema.tables[field.type], target)

    def _number(self, scalar: struct.Struct, pos: int, end: int) -> int | float:
        if pos + scalar.size > end:
            raise Damaged(f"number at byte {pos} lies outside its table")
        number: int | float = scalar.unpack_from(self._data, pos)[0]
        return number

    def _union(self, field: Field, slots: tuple[int, ...], pos: int, end: int) -> Ref | None:
        type_offset = slots[field.slot - 1] if field.slot - 1 < len(slots) else 0
        offset = slots[field.slot] if field.slot < len(slots) else 0
        tag = int(self._number(_NUMBERS["<B"], pos + type_offset, end)) if type_offset else 0
        members = self._schema.unions[field.type]
        if tag > len(members):
            raise Damaged(f"{field.type} type {tag} is not known", newer=True)
        if (tag == 0) != (offset == 0):
            raise Damaged(f"{field.type} type {tag} {'without' if tag else 'with'} a value")
        if tag == 0:
            if field.required:
                raise Damaged("required, but absent")
            return None
        if pos + offset + 4 > end:
            raise Damaged(f"offset at byte {pos + offset} lies outside its table")
        return Ref(self._schema.tables[members[tag - 1]], self._follow(pos + offset))

    def _numbers(self, dtype: np.dtype[Any], pos: int) -> npt.NDArray[Any]:
        (count,) = _U32.unpack_from(self._data, pos)
        if count * dtype.itemsize > self._size - pos - 4:
            raise Damaged(f"{count} elements at byte {pos} reach past the end of the model data")
        return np.frombuffer(self._data, dtype, count, pos + 4)

    def _string(self, pos: int) -> str:
        (length,) = _U32.unpack_from(self._data, pos)
        if length > self._size - pos - 4:
            raise Damaged(f"{length} characters at byte {pos} reach past the end of the model data")
        # A character outside Latin-1 makes Python spend up to four bytes on every other one.
        raw = self._data[pos + 4 : pos + 4 + length]
        self.charge(64 + 2 * length)
        encoded = bytes(raw)
        if not encoded.isascii():
            self.charge(4 * length)
        try:
            return encoded.decode("utf-8")
        except UnicodeDecodeError:
            raise Damaged(f"text at byte {pos} is not valid UTF-8") from None
