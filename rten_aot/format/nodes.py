"""Single nodes of a .rten graph: constants, values, and operators with their attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .graph import Constant, Dim, DType, Node, OpNode, Value
from .schema import Field, Schema, Table
from .tables import Damaged, Record, Ref, Refs, Tables

# Operators that share the attribute table of another one. All others own the table of their name.
_SHARED_ATTRS: Mapping[str, str] = {
    "ArgMin": "ArgMaxAttrs",
    "ConvInteger": "ConvAttrs",
    "GatherElements": "GatherAttrs",
    "InstanceNormalization": "BatchNormalizationAttrs",
    "LogSoftmax": "SoftmaxAttrs",
    "ReduceL2": "ReduceMeanAttrs",
    "ReduceMax": "ReduceMeanAttrs",
    "ReduceMin": "ReduceMeanAttrs",
    "ReduceProd": "ReduceMeanAttrs",
    "ReduceSum": "ReduceMeanAttrs",
    "ReduceSumSquare": "ReduceMeanAttrs",
}

# Operators that had no attributes at first: in files of that time the table is missing, and RTen
# takes its defaults.
_LATE_ATTRS = frozenset({"Pad", "Shape"})

_DTYPES: Mapping[str, DType] = {
    "Int32": "int32",
    "Float": "float32",
    "Float32": "float32",
    "Int8": "int8",
    "UInt8": "uint8",
}
_INLINE_DTYPES: Mapping[str, str] = {
    "Int32Data": "Int32",
    "FloatData": "Float32",
    "Int8Data": "Int8",
    "UInt8Data": "UInt8",
}
_NUMPY_DTYPES: Mapping[str, np.dtype[Any]] = {
    "Int32": np.dtype("<i4"),
    "Float32": np.dtype("<f4"),
    "Int8": np.dtype("i1"),
    "UInt8": np.dtype("u1"),
}

# What rten-convert writes, besides a bare zero, for a size that the ONNX model leaves open.
_FREE_DIM_NAMES = frozenset({"", "?", "-1", "unknown"})

_MAX_RANK = 32

# Memory that nodes of each kind keep, with the tables built over them while checking. Estimates
# on the high side, since the limit must hold for hostile files.
_VALUE_COST = 250
_CONSTANT_COST = 600
_OPERATOR_COST = 800
_ELEMENT_COST = 48


def attrs_table(schema: Schema, op: str) -> Table | None:
    """The table that holds an operator's attributes; None if it has no attributes."""
    return schema.tables.get(_SHARED_ATTRS.get(op, f"{op}Attrs"))


class NodeReader:
    """Turns node tables into the plain data of ``graph.py``."""

    def __init__(self, schema: Schema, tables: Tables, tensors: memoryview | None) -> None:
        self._schema = schema
        self._tables = tables
        self._tensors = tensors

    def read(self, ref: Ref, index: int) -> Node:
        """The node at ``index``. Branches stay a ``Ref`` among the attributes of their operator.

        Raises:
            ModelFormatError: the node is not valid; the error names it.
        """
        label = f"#{index}"
        op: str | None = None
        try:
            record = self._tables.read(ref)
            name: str = record["name"] or ""
            label = name or label
            body: Ref | None = record["data"]
            if body is None:
                raise Damaged("neither an operator nor a constant nor a value")
            match body.table.name:
                case "OperatorNode":
                    data = self._operator_table(body)
                    op = data["type"]
                    return self._operator(name, op, data)
                case "ConstantNode":
                    return self._constant(name, self._tables.read(body))
                case _:
                    return self._value(name, self._tables.read(body))
        except Damaged as err:
            # What could be read before the damage still tells which node it is.
            match err.table:
                case "Node":
                    label = err.partial.get("name") or label
                case "OperatorNode":
                    op = err.partial.get("type")
            raise err.located(label, op) from None

    def ints(self, numbers: npt.NDArray[Any] | None) -> tuple[int, ...]:
        """A vector of integers as plain data; an absent one is empty."""
        if numbers is None:
            return ()
        self._tables.charge(_ELEMENT_COST * len(numbers))
        return tuple(numbers.tolist())

    def _operator_table(self, ref: Ref) -> Record:
        try:
            return self._tables.read(ref)
        except Damaged as err:
            if err.field == "type" and err.value is not None:
                raise Damaged(f"operator number {err.value} is not known", newer=True) from None
            raise

    def _operator(self, name: str, op: str, data: Record) -> OpNode:
        self._tables.charge(_OPERATOR_COST)
        inputs = tuple(None if i < 0 else i for i in self.ints(data["inputs"]))
        outputs = tuple(None if i < 0 else i for i in self.ints(data["outputs"]))
        return OpNode(name, op, inputs, outputs, self._attrs(op, data["attrs"]))

    def _attrs(self, op: str, ref: Ref | None) -> Mapping[str, object]:
        table = attrs_table(self._schema, op)
        if ref is None:
            if table is None:
                return {}
            if op not in _LATE_ATTRS:
                raise Damaged(f"the attributes ({table.name}) are missing")
            return {field.name: field.default for field in table.fields}
        if table is not ref.table:
            expected = table.name if table else "none"
            raise Damaged(f"has attributes of type {ref.table.name}; expected: {expected}")
        record = self._tables.read(ref)
        attrs: dict[str, object] = {}
        for field in table.fields:
            try:
                attrs[field.name] = self._attr(field, record[field.name])
            except Damaged as err:
                err.table, err.field = table.name, field.name
                raise
        return attrs

    def _attr(self, field: Field, value: Any) -> object:
        match field.kind:
            case "numbers":
                return None if value is None else self.ints(value)
            case "union":
                return self._tables.read(value)["value"]
            case "table" if value is None:
                raise Damaged("the branch is missing")
            case _:
                return value

    def _constant(self, name: str, data: Record) -> Constant:
        self._tables.charge(_CONSTANT_COST)
        _check_rank(len(data["shape"]))
        shape = self.ints(data["shape"])
        inline: Ref | None = data["data"]
        offset: int | None = data["data_offset"]
        if (inline is None) == (offset is None):
            raise Damaged(f"has {'no' if inline is None else 'both inline and external'} data")
        if inline is not None:
            flat = self._inline(inline, data["dtype"])
        else:
            assert offset is not None
            flat = self._external(offset, data["dtype"], shape)
        if math.prod(shape) != flat.size:
            raise Damaged(f"shape {list(shape)} does not fit {flat.size} elements of data")
        # NumPy counts the bytes of empty arrays without their zero dimensions.
        if math.prod(filter(None, shape)) * flat.itemsize >= 2**63:
            raise Damaged(f"shape {list(shape)} is too large")
        return Constant(name, flat.reshape(shape))

    def _inline(self, ref: Ref, dtype: str | None) -> npt.NDArray[Any]:
        stored = _INLINE_DTYPES[ref.table.name]
        if dtype not in (None, stored):
            raise Damaged(f"is declared {dtype} but holds {stored} data")
        data: npt.NDArray[Any] = self._tables.read(ref)["data"]
        return data

    def _external(self, offset: int, dtype: str | None, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        if self._tensors is None:
            raise Damaged("refers to tensor data, which a version 1 file does not have")
        if dtype is None:
            raise Damaged("has no data type")
        numpy_dtype = _NUMPY_DTYPES[dtype]
        count = math.prod(shape)
        size = len(self._tensors)
        if offset > size or count * numpy_dtype.itemsize > size - offset:
            raise Damaged(
                f"{count} elements at byte {offset} reach past the end of the tensor data "
                f"({size} bytes)"
            )
        return np.frombuffer(self._tensors, numpy_dtype, count, offset)

    def _value(self, name: str, data: Record) -> Value:
        self._tables.charge(_VALUE_COST)
        dtype = _DTYPES[data["dtype"]] if data["dtype"] is not None else None
        dims: Refs | None = data["shape"]
        if dims is None:
            return Value(name, None, dtype)
        _check_rank(len(dims.offsets))
        return Value(name, tuple(self._dim(ref) for ref in self._tables.each(dims)), dtype)

    def _dim(self, ref: Ref) -> Dim:
        record = self._tables.read(ref)
        name: str | None = record["name"]
        if name is not None:
            return None if name in _FREE_DIM_NAMES else name
        size: int = record["value"]
        return size or None


def _check_rank(rank: int) -> None:
    if rank > _MAX_RANK:
        raise Damaged(f"has {rank} dimensions; supported: {_MAX_RANK}")
