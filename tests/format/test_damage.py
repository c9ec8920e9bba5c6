"""Files that are damaged or hostile at the level of bytes and tables: each message by its text."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import pytest

from rten_aot.errors import ModelFormatError
from rten_aot.format import read_model_bytes
from rten_aot.format.schema import load_schema
from rten_aot.format.tables import Ref, Tables
from tests.support.rten_writer import container, encode

SCHEMA = load_schema()


def model(*nodes: Any, **graph: Any) -> bytes:
    return encode(
        {
            "schema_version": 1,
            "graph": {"nodes": nodes, **graph},
            "metadata": {"description": "d" * 1000},
        }
    )


def op_node(op: str, attrs: Any = None) -> dict[str, Any]:
    return {"name": "n", "data": ("OperatorNode", {"type": op, "attrs": attrs, "inputs": [-1]})}


def constant(**fields: Any) -> dict[str, Any]:
    return {"name": "c", "data": ("ConstantNode", fields)}


class Patcher:
    """Finds the bytes of a table in a file and overwrites them."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self._tables = Tables(SCHEMA, memoryview(data), len(data))

    def table(self, *path: str | int) -> Ref:
        ref: Any = self._tables.root(SCHEMA.tables["Model"])
        for step in path:
            ref = list(self._tables.each(ref))[step] if isinstance(step, int) else (
                self._tables.read(ref)[step]
            )  # fmt: skip
        assert isinstance(ref, Ref)
        return ref

    def vtable(self, ref: Ref) -> int:
        return ref.pos - int(struct.unpack_from("<i", self.data, ref.pos)[0])

    def slot(self, ref: Ref, field: str) -> int:
        """Where the vtable says where the field is."""
        (slot,) = (f.slot for f in ref.table.fields if f.name == field)
        return self.vtable(ref) + 4 + 2 * slot

    def target(self, ref: Ref, field: str) -> int:
        pos = ref.pos + int(struct.unpack_from("<H", self.data, self.slot(ref, field))[0])
        return pos + int(struct.unpack_from("<I", self.data, pos)[0])

    def put(self, fmt: str, pos: int, *values: int) -> None:
        struct.pack_into(fmt, self.data, pos, *values)


CONV = op_node("Conv", ("ConvAttrs", {"auto_pad": "NotSet", "pads": [1, 1]}))
GEMM = op_node("Gemm", ("GemmAttrs", {"transpose_a": True, "alpha": 1.0}))
ATTRS = ("graph", "nodes", 0, "data", "attrs")


def _root_offset(p: Patcher) -> None:
    p.put("<I", 0, 2**32 - 1)


def _root_vtable(p: Patcher) -> None:
    p.put("<i", p.table().pos, -(2**31))


def _vtable_size(p: Patcher) -> None:
    p.put("<H", p.vtable(p.table("graph")), 7)


def _vtable_fields(p: Patcher) -> None:
    p.put("<H", p.vtable(p.table(*ATTRS)), 4 + 2 * 100)
    p.data += bytes(200)


def _new_field(p: Patcher) -> None:
    ref = p.table(*ATTRS)
    size = 4 + 2 * ref.table.slots
    used = struct.unpack_from("<H", p.data, p.vtable(ref))[0]
    longer = bytes(p.data[p.vtable(ref) : p.vtable(ref) + used]).ljust(size, b"\0") + b"\4\0"
    p.put("<i", ref.pos, ref.pos - len(p.data))
    p.data += struct.pack("<H", size + 2) + longer[2:]


def _table_size(p: Patcher) -> None:
    p.put("<H", p.vtable(p.table("graph")) + 2, 65535)


def _number_outside(p: Patcher) -> None:
    p.put("<H", p.slot(p.table(), "schema_version"), 60000)


def _offset_outside(p: Patcher) -> None:
    p.put("<H", p.slot(p.table(), "graph"), 60000)


def _union_outside(p: Patcher) -> None:
    p.put("<H", p.slot(p.table("graph", "nodes", 0), "data"), 60000)


def _offset_past_end(p: Patcher) -> None:
    ref = p.table()
    (at,) = struct.unpack_from("<H", p.data, p.slot(ref, "graph"))
    p.put("<I", ref.pos + at, len(p.data))


def _not_a_bool(p: Patcher) -> None:
    ref = p.table(*ATTRS)
    (at,) = struct.unpack_from("<H", p.data, p.slot(ref, "transpose_a"))
    p.put("<B", ref.pos + at, 2)


def _vector_length(p: Patcher) -> None:
    p.put("<I", p.target(p.table(*ATTRS), "pads"), 2**32 - 1)


def _nodes_length(p: Patcher) -> None:
    p.put("<I", p.target(p.table("graph"), "nodes"), 2**30)


def _string_length(p: Patcher) -> None:
    p.put("<I", p.target(p.table("graph", "nodes", 0), "name"), 2**32 - 1)


def _string_bytes(p: Patcher) -> None:
    p.put("<B", p.target(p.table("graph", "nodes", 0), "name") + 4, 0xFF)


def _tag_without_value(p: Patcher) -> None:
    p.put("<H", p.slot(p.table("graph", "nodes", 0), "data"), 0)


def _schema_version(p: Patcher) -> None:
    ref = p.table()
    (at,) = struct.unpack_from("<H", p.data, p.slot(ref, "schema_version"))
    p.put("<i", ref.pos + at, 2)


PATCHES: list[tuple[Callable[[Patcher], None], dict[str, Any], str]] = [
    (_root_offset, CONV, r"offset at byte 0 points past the end of the model data"),
    (_root_vtable, CONV, r"Model: vtable of the table at byte \d+ is out of range"),
    (_vtable_size, CONV, r"Graph: vtable at byte \d+ has a bad size of 7"),
    (_vtable_fields, CONV, r'in node "n" \(Conv\): vtable at byte \d+ has 100 fields'),
    (_new_field, CONV, r'in node "n" \(Conv\): field number 5 is not known\nhint: .*newer RTen'),
    (_table_size, CONV, r"Graph: table at byte \d+ has a bad size of 65535"),
    (_number_outside, CONV, r"Model.schema_version: number at byte \d+ lies outside its table"),
    (_offset_outside, CONV, r"Model.graph: offset at byte \d+ lies outside its table"),
    (_union_outside, CONV, r'in node "n": Node.data: offset at byte \d+ lies outside its table'),
    (_offset_past_end, CONV, r"Model.graph: offset at byte \d+ points past the end of the model"),
    (_not_a_bool, GEMM, r'in node "n" \(Gemm\), attribute "transpose_a": value "2" is not a bool'),
    (
        _vector_length,
        CONV,
        r'in node "n" \(Conv\), attribute "pads": 4294967295 elements at byte \d+ reach past',
    ),
    (_nodes_length, CONV, r"Graph.nodes: 1073741824 elements at byte \d+ reach past the end"),
    (
        _string_length,
        CONV,
        r'in node "#0": Node.name: 4294967295 characters at byte \d+ reach past the end',
    ),
    (_string_bytes, CONV, r'in node "#0": Node.name: text at byte \d+ is not valid UTF-8'),
    (_tag_without_value, CONV, r'in node "n": Node.data: NodeKind type 1 without a value'),
    (_schema_version, CONV, r'schema version "2" is not supported; supported: 1\nhint: '),
]


@pytest.mark.parametrize(
    ("patch", "node", "message"), PATCHES, ids=[patch.__name__[1:] for patch, _, _ in PATCHES]
)
def test_patched_bytes(
    patch: Callable[[Patcher], None], node: dict[str, Any], message: str
) -> None:
    data = model(node)
    read_model_bytes(data)
    patcher = Patcher(data)
    patch(patcher)
    with pytest.raises(ModelFormatError, match=f"^{message}"):
        read_model_bytes(bytes(patcher.data))


INLINE = ("FloatData", {"data": [1.0, 2.0]})

TABLES = {
    "no-graph": (encode({"schema_version": 1}), "Model.graph: required, but absent"),
    "no-kind": (
        model({"name": "n"}),
        'in node "n": neither an operator nor a constant nor a value',
    ),
    "value-without-tag": (
        model({"name": "n", "data": (0, "ValueNode", {})}),
        'in node "n": Node.data: NodeKind type 0 with a value',
    ),
    "unknown-kind": (
        model({"name": "n", "data": (4, "ValueNode", {})}),
        'in node "n": Node.data: NodeKind type 4 is not known',
    ),
    "value-dtype": (
        model({"name": "n", "data": ("ValueNode", {"dtype": 9})}),
        'in node "n": ValueNode.dtype: value "9" is not known; known: Int32, Float, Int8, UInt8',
    ),
    "value-rank": (
        model({"name": "n", "data": ("ValueNode", {"shape": [{}] * 33})}),
        'in node "n": has 33 dimensions; supported: 32',
    ),
    "no-shape": (model(constant()), 'in node "c": ConstantNode.shape: required, but absent'),
    "no-data": (model(constant(shape=[2])), 'in node "c": has no data'),
    "both-data": (
        model(constant(shape=[2], data=INLINE, data_offset=0)),
        'in node "c": has both inline and external data',
    ),
    "dtype-differs": (
        model(constant(shape=[2], data=INLINE, dtype="Int32")),
        'in node "c": is declared Int32 but holds Float32 data',
    ),
    "shape-differs": (
        model(constant(shape=[3, 2], data=INLINE)),
        'in node "c": shape [3, 2] does not fit 2 elements of data',
    ),
    "shape-overflows": (
        model(constant(shape=[2**31, 2**31, 4], data=("FloatData", {"data": []}))),
        'in node "c": shape [2147483648, 2147483648, 4] does not fit 0 elements of data',
    ),
    "empty-but-huge": (
        model(constant(shape=[0, 2**31, 2**31, 4], data=("FloatData", {"data": []}))),
        'in node "c": shape [0, 2147483648, 2147483648, 4] is too large',
    ),
    "rank": (
        model(constant(shape=[1] * 33, data=INLINE)),
        'in node "c": has 33 dimensions; supported: 32',
    ),
    "external-in-v1": (
        model(constant(shape=[2], dtype="Int8", data_offset=0)),
        'in node "c": refers to tensor data, which a version 1 file does not have',
    ),
    "external-without-dtype": (
        container(model(constant(shape=[2], data_offset=0))),
        'in node "c": has no data type',
    ),
    "external-past-end": (
        container(model(constant(shape=[2], dtype="Int32", data_offset=1)), b"12345678"),
        'in node "c": 2 elements at byte 1 reach past the end of the tensor data (8 bytes)',
    ),
    "external-offset-overflows": (
        container(model(constant(shape=[0], dtype="Int8", data_offset=2**64 - 1)), b"1"),
        'in node "c": 0 elements at byte 18446744073709551615 reach past the end of the tensor '
        "data (1 bytes)",
    ),
    "external-shape-overflows": (
        container(model(constant(shape=[2**31] * 32, dtype="Int8", data_offset=0))),
        f'in node "c": {2**992} elements at byte 0 reach past the end of the tensor data (0 bytes)',
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(case: str) -> None:
    data, message = TABLES[case]
    with pytest.raises(ModelFormatError, match=f"^{re.escape(message)}(\nhint: .*)?$"):
        read_model_bytes(data)


def header(version: int = 2, offset: int = 32, length: int = 16, tensors: int = 48) -> bytes:
    return struct.pack("<4sIQQQ", b"RTEN", version, offset, length, tensors) + bytes(16)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"RTEN\2\0\0", "the file has only 7 bytes"),
        (b"\x7fELF\2\1\1\0", "not a .rten model, but machine code, as rten-aot compile writes it"),
        (b"\0asm\1\0\0\0", "not a .rten model, but machine code, as rten-aot compile writes it"),
        (header()[:31], "the file ends inside its header, after 31 bytes"),
        (header(version=3), 'header version "3" is not supported; supported: 2'),
        (header(offset=8), "the header puts 16 bytes of model data at byte 8 of a file of 48"),
        (header(length=17), "the header puts 17 bytes of model data at byte 32 of a file of 48"),
        (header(offset=2**64 - 1), f"the header puts 16 bytes of model data at byte {2**64 - 1}"),
        (header(length=2**64 - 1), f"the header puts {2**64 - 1} bytes of model data"),
        (header(length=7), "the model data has only 7 bytes"),
        (header(tensors=49), "the header puts the tensor data at byte 49 of a file of 48 bytes"),
        (bytes(100), "not a .rten model: no RTEN mark, and not readable without"),
    ],
)
def test_bad_header(data: bytes, message: str) -> None:
    with pytest.raises(ModelFormatError, match=f"^{re.escape(message)}"):
        read_model_bytes(data)
