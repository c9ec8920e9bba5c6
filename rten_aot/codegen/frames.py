"""What the walk over Relax functions keeps: where values lie and which sizes are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

from rten_aot.codegen.memory import ALIGNMENT
from rten_aot.codegen.program import Planned, SizeCheck, Step, Storage, Weight
from rten_aot.codegen.sizes import free_sizes, type_sizes
from rten_aot.dialect.functions import bindings
from rten_aot.errors import InternalError

Place: TypeAlias = Storage | list[Storage]
"""Where a value lies: one storage, or one for each element of a group."""


@dataclass
class Frame:
    """The function at hand: where its values lie, its steps so far, the sizes known so far."""

    places: dict[relax.Var, Place]
    defined: set[tirx.Var]
    checks: list[SizeCheck]
    steps: list[Step] = field(default_factory=list)


class Weights:
    """Constants laid out one after the other; equal ones share their place."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, npt.NDArray[np.generic]]] = []
        self.bytes = 0
        self._known: dict[object, Weight] = {}

    def place(self, constant: relax.Constant) -> Weight:
        """Where the constant lies."""
        array = constant.value.numpy()
        small = array.nbytes <= 4096
        key = (array.dtype.str, array.shape, array.tobytes()) if small else constant
        if key not in self._known:
            self._known[key] = Weight(self.bytes)
            self.chunks.append((self.bytes, array))
            self.bytes += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        return self._known[key]


def match(param: tirx.Var, ty: relax.TensorType, actual: dict[tirx.Var, tirx.Expr]) -> None:
    """Learn the values of the kernel's size variables from the type that it is called with."""
    for formal, size in zip(param.ty.shape, ty.shape.values, strict=True):
        if isinstance(formal, tvm.ir.Var):
            actual.setdefault(formal, size)


def roots(buffers: Sequence[Planned]) -> list[Planned]:
    """The buffers to be placed, numbered; lifetimes are widened by those that lie in them."""
    for storage in buffers:
        root = storage.root()
        if isinstance(root, Planned) and root is not storage:
            root.first = min(root.first, storage.first)
            root.last = max(root.last, storage.last)
    placed = [b for b in buffers if b.home is None and not b.dynamic]
    for index, storage in enumerate(placed):
        storage.index = index
    return placed


def in_order(function: relax.Function, frame: Frame) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """The bindings, in an order in which sizes that the model computes are known before their use.

    Fusion puts a group where its first member stood. The caller adds what a binding defines to
    ``frame`` before it asks for the next one.
    """
    waiting = list(bindings(function))
    while waiting:
        held = []
        for var, value in waiting:
            if _is_ready(value, frame):
                yield var, value
            else:
                held.append((var, value))
        if len(held) == len(waiting):
            raise InternalError(f"sizes that {held[0][0].name} needs are never defined")
        waiting = held


def _is_ready(value: object, frame: Frame) -> bool:
    """Whether the operands of a binding have places and the sizes in it are known."""
    if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
        # Other calls give sizes of their own.
        kernel = value.op.name == "relax.call_tir"
        types = list(value.ty.fields) if isinstance(value.ty, relax.TupleType) else [value.ty]
        return all(_is_ready(a, frame) for a in value.args) and not (
            kernel and any(not type_sizes(ty) <= frame.defined for ty in types)
        )
    if isinstance(value, tvm.ir.Tuple):
        return all(_is_ready(f, frame) for f in value.fields)
    if isinstance(value, relax.TupleGetItem):
        return _is_ready(value.tuple_value, frame)
    if isinstance(value, relax.ShapeExpr):
        return all(free_sizes(d) <= frame.defined for d in value.values)
    if isinstance(value, tvm.ir.Var) and isinstance(value.ty, (relax.TensorType, relax.TupleType)):
        return value in frame.places
    if isinstance(value, (tvm.ir.GlobalVar, tvm.ir.GenericConst)):
        return True
    return free_sizes(value) <= frame.defined
