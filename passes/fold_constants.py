"""FoldConstants: what depends on constants alone is computed at compile time.

Moves of data are done by NumPy. Everything else is compiled and run, by the kernels that the model
itself would use, but for any CPU of the architecture that compiles: neither that machine's CPU nor
the target's changes a constant. Their sums may round otherwise, and the sign of a NaN is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

from rten_aot.dialect.functions import bindings, result_of
from rten_aot.dialect.registry import attrs_of, op_def
from rten_aot.passes.base import Rewriter, relax_functions

Evaluate: TypeAlias = Callable[[tvm.IRModule], "Sequence[npt.NDArray[np.generic]] | None"]
"""Runs a module whose ``main`` takes nothing; gives its results, None if the run fails."""

MAX_GROWTH = 4
"""A folded value may be this many times as large as the constants it is made of …"""
SMALL_BYTES = 1 << 16
"""… or have this many bytes: larger ones are better computed than stored."""


class MoveConstants(Rewriter):
    """``reshape(constant)`` and ``transpose(constant)`` --> ``constant``."""

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Move the data of a constant operand."""
        if not isinstance(value, tvm.ir.Call) or not value.args:
            return value
        source = value.args[0]
        if not isinstance(source, tvm.ir.GenericConst):
            return value
        shape = (
            [int(d.value) for d in var.ty.shape.values if isinstance(d, tirx.IntImm)]
            if isinstance(var.ty, relax.TensorType)
            else []
        )
        name = getattr(value.op, "name", "")
        if name == "relax.reshape" and len(shape) == len(var.ty.shape.values):
            return relax.const(source.value.numpy().reshape(shape))
        if name == "rten.transpose":
            moved = source.value.numpy().transpose(attrs_of(value)["axes"])
            return relax.const(np.ascontiguousarray(moved))
        return value


class ReplaceVariables(Rewriter):
    """Binds variables to constants."""

    def __init__(self, constants: dict[relax.Var, npt.NDArray[np.generic]]) -> None:
        super().__init__()
        self._constants = constants

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """The constant, if there is one for ``var``."""
        array = self._constants.get(var)
        return value if array is None else relax.const(array, str(array.dtype))


def fold_constants(mod: tvm.IRModule, evaluate: Evaluate) -> tvm.IRModule:
    """The module with constant expressions computed.

    What fails when it is computed, such as a division by zero, is left to fail in the run that
    needs it.
    """
    mod = MoveConstants().run(mod)
    _, wanted = _constants(mod)
    values = _values(mod, wanted, evaluate)
    return ReplaceVariables(values).run(mod) if values else mod


def _values(
    mod: tvm.IRModule, wanted: Sequence[relax.Var], evaluate: Evaluate
) -> dict[relax.Var, npt.NDArray[np.generic]]:
    """The values of those of the variables that can be computed, found by halving."""
    if not wanted:
        return {}
    arrays = evaluate(_constants(mod, set(wanted))[0])
    if arrays is not None:
        return dict(zip(wanted, map(_with_one_nan, arrays), strict=True))
    if len(wanted) == 1:
        return {}
    half = len(wanted) // 2
    return _values(mod, wanted[:half], evaluate) | _values(mod, wanted[half:], evaluate)


def _with_one_nan(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The array with NaNs of one kind: the sign of one that was computed depends on the CPU."""
    if array.dtype != np.float32:
        return array
    return np.where(np.isnan(array), np.float32(np.nan), array)


def _constants(
    mod: tvm.IRModule, keep: Set[relax.Var] | None = None
) -> tuple[tvm.IRModule, list[relax.Var]]:
    """A module whose ``main`` computes constants of all functions, and their variables in order.

    ``keep`` are the variables to be computed, by default all that something else uses.
    """
    builder = relax.BlockBuilder()
    wanted: list[relax.Var] = []
    with builder.function("main", []):
        with builder.dataflow():
            results: list[relax.Expr] = []
            for _, function in relax_functions(mod):
                copies = _foldable(function, builder)
                used = _used_outside(function, copies)
                used = [v for v in used if keep is None or v in keep]
                wanted += used
                results += [copies[v] for v in used]
            output = builder.emit_output(tvm.ir.Tuple(results))
        builder.emit_func_output(output)
    return builder.get(), wanted


def _foldable(function: relax.Function, builder: relax.BlockBuilder) -> dict[relax.Var, relax.Expr]:
    """Copies, in ``builder``, of the bindings that depend on constants alone, by variable."""
    copies: dict[relax.Var, relax.Expr] = {}

    def operand(expr: relax.Expr) -> relax.Expr | None:
        if isinstance(expr, tvm.ir.Var):
            return copies.get(expr)
        if isinstance(expr, relax.ShapeExpr):
            return expr if all(isinstance(d, tirx.IntImm) for d in expr.values) else None
        return expr if isinstance(expr, tvm.ir.GenericConst) else None

    for var, value in bindings(function):
        copy: relax.Expr | None = None
        if isinstance(value, relax.TupleGetItem):
            source = operand(value.tuple_value)
            copy = None if source is None else relax.TupleGetItem(source, value.index)
        elif isinstance(value, tvm.ir.Call) and _may_fold(value):
            args = [operand(a) for a in value.args]
            if all(a is not None for a in args) and _worth_storing(var.ty, args):
                copy = tvm.ir.Call(value.op, args, value.attrs, value.ty_args)
        if copy is not None:
            copies[var] = builder.emit(copy)
    return copies


def _may_fold(value: relax.Call) -> bool:
    definition = op_def(value)
    if definition is None:
        return getattr(value.op, "name", "") == "relax.reshape"
    # Sizes that the model computes are int64, which no artifact hands out.
    types = list(value.ty.fields) if isinstance(value.ty, relax.TupleType) else [value.ty]
    return definition.pure and all(str(ty.dtype) != "int64" for ty in types)


def _worth_storing(ty: relax.Type, operands: Sequence[relax.Expr | None]) -> bool:
    types = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    inputs = [a.ty for a in operands if a is not None and isinstance(a.ty, relax.TensorType)]
    size = sum(map(_bytes, types))
    return size <= max(SMALL_BYTES, MAX_GROWTH * sum(map(_bytes, inputs)))


def _bytes(ty: relax.TensorType) -> int:
    count = int(np.prod([int(d.value) for d in ty.shape.values], dtype=np.int64))
    return count * np.dtype(str(ty.dtype)).itemsize


def _used_outside(function: relax.Function, copies: dict[relax.Var, relax.Expr]) -> list[relax.Var]:
    """The folded tensors that bindings which are not folded, or the result, use."""
    used: dict[relax.Var, None] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.Var) and expr in copies:
            if isinstance(expr.ty, relax.TensorType):
                used.setdefault(expr)
        elif isinstance(expr, tvm.ir.Tuple):
            for field in expr.fields:
                visit(field)

    for var, value in bindings(function):
        if var in copies:
            if isinstance(value, relax.TupleGetItem):
                continue
        elif isinstance(value, tvm.ir.Call):
            for arg in value.args:
                visit(arg)
        else:
            visit(value)
    for field in result_of(function):
        visit(field)
    return list(used)
