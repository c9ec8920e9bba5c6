"""FoldScales: factors and terms for each channel that follow a convolution go into its weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from rten_aot.dialect.origins import nodes_of, with_nodes
from rten_aot.dialect.registry import attrs_of, call, op_def
from rten_aot.passes.base import Rewriter

Array = npt.NDArray[Any]


class FoldScales(Rewriter):
    """Batch normalisation and what is like it, after a convolution with constant weights.

    ``multiply(conv(x, w), c)`` --> ``conv(x, w * c)``;
    ``multiply(add(conv(x, w), b), c)`` --> ``add(conv(x, w * c), b * c)``;
    ``add(add(y, b), c)`` --> ``add(y, b + c)`` where y is a convolution.
    The value that is folded away must have no other use.
    """

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Fold a multiplication by, or an addition of, a constant for each channel."""
        definition = op_def(value)
        if definition is None or definition.name not in ("rten.multiply", "rten.add"):
            return value
        operands = _with_constant(value)
        if operands is None or not self.used_once(operands[0]):
            return value
        fold = self._scaled if definition.name == "rten.multiply" else self._shifted
        folded = fold(*operands)
        return value if folded is None else folded

    def _scaled(self, inner: relax.Var, factor: Array) -> relax.Expr | None:
        source = self.bound.get(inner)
        definition = op_def(source)
        if definition is None:
            return None
        if definition.name in ("rten.conv", "rten.conv_transpose"):
            return _scaled_convolution(source, factor)
        if definition.name != "rten.add":
            return None
        parts = _with_constant(source)
        if parts is None or not self.used_once(parts[0]):
            return None
        convolution = self.bound.get(parts[0])
        if op_def(convolution) is None:
            return None
        scaled = _scaled_convolution(convolution, factor)
        if scaled is None:
            return None
        shape = _channel_shape(parts[1], factor)
        if shape is None:
            return None
        total = call("add", self.emit(scaled), _constant(parts[1] * factor))
        return with_nodes(total, nodes_of(source))

    def _shifted(self, inner: relax.Var, term: Array) -> relax.Expr | None:
        source = self.bound.get(inner)
        definition = op_def(source)
        if definition is None or definition.name != "rten.add":
            return None
        parts = _with_constant(source)
        if parts is None:
            return None
        base = op_def(self.bound.get(parts[0]))
        if base is None or base.name not in ("rten.conv", "rten.conv_transpose"):
            return None
        if _channel_shape(parts[1], term) is None:
            return None
        return with_nodes(call("add", parts[0], _constant(parts[1] + term)), nodes_of(source))


def fold_scales(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with scales folded into convolutions."""
    return FoldScales().run(mod)


def _with_constant(value: relax.Call) -> tuple[relax.Var, Array] | None:
    """The variable and the float32 constant of a commutative operator, if it has one of each."""
    a, b = value.args
    if isinstance(a, tvm.ir.GenericConst):
        a, b = b, a
    if not isinstance(b, tvm.ir.GenericConst) or not isinstance(a, tvm.ir.Var):
        return None
    array = b.value.numpy()
    return (a, array) if array.dtype == np.float32 else None


def _constant(array: Array) -> relax.Expr:
    return relax.const(np.ascontiguousarray(array, np.float32))


def _channel_shape(a: Array, b: Array) -> tuple[int, ...] | None:
    """The shape of ``a`` with ``b`` if both hold one element for each channel, or one for all."""
    if per_channel(a) is None or per_channel(b) is None:
        return None
    return np.broadcast_shapes(a.shape, b.shape)


def per_channel(array: Array) -> Array | None:
    """The elements of an operand that varies along axis 1 of 4 only, as a vector or scalar."""
    shape = (1,) * (4 - array.ndim) + array.shape
    if len(shape) != 4 or shape[0] != 1 or shape[2:] != (1, 1):
        return None
    return array.reshape(-1)


def _scaled_convolution(value: relax.Expr | None, factor: Array) -> relax.Expr | None:
    definition = op_def(value)
    factors = per_channel(factor)
    if definition is None or factors is None or value is None:
        return None
    if definition.name not in ("rten.conv", "rten.conv_transpose"):
        return None
    attrs = attrs_of(value)
    weight = value.args[1]
    if not isinstance(weight, tvm.ir.GenericConst):
        return None
    array = weight.value.numpy()
    if definition.name == "rten.conv":
        channels, axis = array.shape[0], 0
    elif attrs["groups"] == 1:
        channels, axis = array.shape[1], 1
    else:
        return None
    if factors.size not in (1, channels):
        return None
    shape = [1] * array.ndim
    shape[axis] = factors.size
    # float64: one rounding, as if the weights had been scaled when the model was made.
    scaled = (array.astype(np.float64) * factors.reshape(shape)).astype(np.float32)
    args = [value.args[0], relax.const(scaled), *value.args[2:]]
    return tvm.ir.Call(value.op, args, value.attrs, value.ty_args, value.span)
