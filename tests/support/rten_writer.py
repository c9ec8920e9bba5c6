"""Writes .rten files from plain data, for tests that need a model no converter would make.

``write_model`` takes a valid ``Graph``. ``encode`` takes nested dicts in the schema's own words and
checks nothing, so that tests can write every kind of nonsense.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import flatbuffers
import numpy as np

from rten_aot.format import Constant, Graph, Node, OpNode, Value, schema_generated
from rten_aot.format.nodes import attrs_table
from rten_aot.format.schema import Field, load_schema

# A table by field name. Enums are names or raw numbers, unions are pairs of a member's name (or a
# raw tag and a name) and its table.
RawTable: TypeAlias = Mapping[str, Any]

_TENSOR_ALIGNMENT = 64
_HEADER_SIZE = 32
_DTYPE_NAMES = {"int32": "Int32", "float32": "Float", "int8": "Int8", "uint8": "UInt8"}
_CONSTANTS = {
    "int32": ("Int32", "Int32Data"),
    "float32": ("Float32", "FloatData"),
    "int8": ("Int8", "Int8Data"),
    "uint8": ("UInt8", "UInt8Data"),
}


def write_model(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    version: int = 2,
    metadata: Mapping[str, str] | None = None,
    external_data: bool = True,
) -> Path:
    """Write ``graph`` as a .rten file. Version 1 files hold all tensor data inline."""
    tensors = bytearray() if version == 2 and external_data else None
    model = {
        "schema_version": 1,
        "graph": raw_graph(graph, tensors),
        "metadata": dict(metadata or {}),
    }
    data = encode(model) if version == 1 else container(encode(model), bytes(tensors or b""))
    Path(path).write_bytes(data)
    return Path(path)


def container(model: bytes, tensors: bytes = b"") -> bytes:
    """A version 2 file around encoded model data."""
    tensor_offset = _align(_HEADER_SIZE + len(model))
    header = struct.pack("<4sIQQQ", b"RTEN", 2, _HEADER_SIZE, len(model), tensor_offset)
    return (header + model).ljust(tensor_offset, b"\0") + tensors


def encode(model: RawTable, *, root: str = "Model") -> bytes:
    """A FlatBuffers buffer with the identifier RTEN."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(_table(builder, root, model), b"RTEN")
    return bytes(builder.Output())


def raw_graph(graph: Graph, tensors: bytearray | None = None) -> dict[str, Any]:
    """``graph`` in the schema's words; large constants go to the end of ``tensors`` if given."""
    raw: dict[str, Any] = {
        "nodes": [raw_node(node, tensors) for node in graph.nodes],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }
    if graph.captures:
        raw["captures"] = graph.captures
    return raw


def raw_node(node: Node, tensors: bytearray | None = None) -> dict[str, Any]:
    """One node in the schema's words."""
    match node:
        case Constant():
            return {"name": node.name, "data": ("ConstantNode", _raw_constant(node, tensors))}
        case Value():
            value: dict[str, Any] = {}
            if node.shape is not None:
                value["shape"] = [_raw_dim(dim) for dim in node.shape]
            if node.dtype is not None:
                value["dtype"] = _DTYPE_NAMES[node.dtype]
            return {"name": node.name, "data": ("ValueNode", value)}
        case OpNode():
            return {"name": node.name, "data": ("OperatorNode", _raw_operator(node, tensors))}


def _raw_dim(dim: int | str | None) -> dict[str, Any]:
    match dim:
        case None:
            return {}
        case str():
            return {"name": dim}
        case _:
            return {"value": dim}


def _raw_constant(node: Constant, tensors: bytearray | None) -> dict[str, Any]:
    dtype, union = _CONSTANTS[node.data.dtype.name]
    raw: dict[str, Any] = {"shape": node.data.shape, "dtype": dtype}
    if tensors is None or node.data.size <= 16:
        raw["data"] = (union, {"data": node.data.ravel()})
    else:
        tensors.extend(bytes(_align(len(tensors)) - len(tensors)))
        raw["data_offset"] = len(tensors)
        tensors.extend(node.data.tobytes())
    return raw


def _raw_operator(node: OpNode, tensors: bytearray | None) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "type": node.op,
        "inputs": [-1 if i is None else i for i in node.inputs],
        "outputs": [-1 if i is None else i for i in node.outputs],
    }
    if (table := attrs_table(load_schema(), node.op)) is not None:
        attrs: dict[str, Any] = {}
        for name, value in node.attrs.items():
            if isinstance(value, Graph):
                attrs[name] = raw_graph(value, tensors)
            elif table.name == "ConstantOfShapeAttrs":
                scalar = "IntScalar" if isinstance(value, int) else "FloatScalar"
                attrs[name] = (scalar, {"value": value})
            else:
                attrs[name] = value
        raw["attrs"] = (table.name, attrs)
    return raw


def _table(builder: flatbuffers.Builder, name: str, values: RawTable) -> int:
    """Children first: a FlatBuffers table cannot be built inside another."""
    fields = {field.name: field for field in load_schema().tables[name].fields}
    add: list[tuple[str, Any]] = []
    for key, value in values.items():
        if value is not None:
            add.extend(_field(builder, name, fields[key], value))
    _generated(f"{name}Start")(builder)
    for setter, value in add:
        _generated(f"{name}Add{setter}")(builder, value)
    return int(_generated(f"{name}End")(builder))


def _field(
    builder: flatbuffers.Builder, table: str, field: Field, value: Any
) -> list[tuple[str, Any]]:
    setter = "".join(word[0].upper() + word[1:] for word in field.name.split("_"))
    match field.kind:
        case "enum" if isinstance(value, str):
            value = load_schema().enums[field.type].names.index(value)
        case "string":
            text = value if isinstance(value, bytes) else value.encode()
            value = builder.CreateString(text)
        case "table":
            value = _table(builder, field.type, value)
        case "tables":
            offsets = [_table(builder, field.type, item) for item in value]
            value = _vector(builder, f"{table}Start{setter}Vector", offsets)
        case "numbers":
            numbers = np.ascontiguousarray(value, dtype=np.dtype(field.type))
            if numbers.size:
                value = builder.CreateNumpyVector(numbers)
            else:
                value = _vector(builder, f"{table}Start{setter}Vector", [])
        case "union":
            tag, name, content = value if len(value) == 3 else (None, *value)
            if tag is None:
                tag = load_schema().unions[field.type].index(name) + 1
            return [(f"{setter}Type", tag), (setter, _table(builder, name, content))]
    return [(setter, value)]


def _vector(builder: flatbuffers.Builder, start: str, offsets: Sequence[int]) -> int:
    _generated(start)(builder, len(offsets))
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _generated(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(schema_generated, name)
    return function


def _align(size: int) -> int:
    return -(-size // _TENSOR_ALIGNMENT) * _TENSOR_ALIGNMENT


def plain(graph: Graph) -> tuple[Any, ...]:
    """``graph`` as nested tuples that compare by value, arrays by data type, shape and bytes."""
    return (
        tuple(_plain_node(node) for node in graph.nodes),
        tuple(graph.inputs),
        tuple(graph.outputs),
        tuple(graph.captures),
    )


def _plain_node(node: Node) -> tuple[Any, ...]:
    match node:
        case Constant():
            return ("constant", node.name, node.data.dtype, node.data.shape, node.data.tobytes())
        case Value():
            return ("value", node.name, node.shape, node.dtype)
        case OpNode():
            attrs = {
                name: plain(value) if isinstance(value, Graph) else repr(value)
                for name, value in node.attrs.items()
            }
            return ("operator", node.name, node.op, node.inputs, node.outputs, attrs)
