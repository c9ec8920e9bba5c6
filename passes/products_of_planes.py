"""ProductsOfPlanes: 1x1 convolutions among channels-first values become matrix products.

Channels-first, such a convolution is the product of its weights with the matrix of the picture's
planes. Where neither what it reads nor what reads it is channels-last, that saves two transposes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import tvm
from tvm import relax, tirx

from rten_aot.dialect.broadcast import static
from rten_aot.dialect.functions import bindings
from rten_aot.dialect.registry import Layout, attrs_of, call, op_def
from rten_aot.passes.base import Rewriter

_FEWEST_PIXELS = 128
"""Of smaller pictures, the pixels beside whole vectors take longer than transposes."""


class ProductsOfPlanes(Rewriter):
    """``relu(add(conv(x, w), b))`` --> ``reshape(relu(add(matmul(w', reshape(x)), b')))``.

    Weights are constant, sizes known, strides are taken first. What follows element by element
    works on matrices as well.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note
        self._plain: set[relax.Var] = set()
        """Variables of the old function that are sure to be channels-first."""
        self._wanted_plain: set[relax.Var] = set()
        """Those that all readers, the ones element by element passed over, want channels-first."""
        self._values: dict[relax.Var, relax.Expr] = {}
        self._matrices: dict[relax.Var, relax.Var] = {}
        """By a picture: its matrices [batch, groups, channels, pixels]."""

    def begin(self, function: relax.Function) -> None:
        """Learn which values are read and made by operators that know no layout."""
        self._values = dict(bindings(function))
        self._matrices = {}
        self._plain = set(function.params)
        for var, value in self._values.items():
            if self._makes_plain(value):
                self._plain.add(var)
        users: defaultdict[relax.Var, list[tuple[relax.Var, relax.Call]]] = defaultdict(list)
        self._wanted_plain = set()
        for var, value in reversed(self._values.items()):
            if all(self._wants_plain(*user, var) for user in users[var]):
                self._wanted_plain.add(var)
            for operand in value.args if isinstance(value, tvm.ir.Call) else ():
                if isinstance(operand, tvm.ir.Var):
                    users[operand].append((var, value))

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """A convolution, or what is done to the elements of one."""
        definition = op_def(value)
        if definition is None:
            return value
        if definition.name == "rten.conv" and _is_product(value):
            if self._values[var].args[0] in self._plain and var in self._wanted_plain:
                return self._product(var, value)
        elif definition.layout is Layout.ELEMENTWISE:
            return self._elementwise(var, value)
        return value

    # -- surroundings ---------------------------------------------------------------------------

    def _makes_plain(self, value: relax.Expr) -> bool:
        """Whether the result is sure to be channels-first."""
        definition = op_def(value)
        if definition is None:
            return _is_reshape(value) and value.args[0] in self._plain
        if definition.layout is Layout.ELEMENTWISE:
            return all(a in self._plain for a in value.args if isinstance(a, tvm.ir.Var))
        return definition.layout is Layout.FIXED and definition.name != "rten.transpose"

    def _wants_plain(self, user: relax.Var, value: relax.Call, operand: relax.Var) -> bool:
        """Whether the reader of a value, or what reads its result, wants it channels-first."""
        definition = op_def(value)
        if definition is None:
            return True
        if definition.layout is Layout.ELEMENTWISE:
            return user in self._wanted_plain and self._can_follow(value, operand)
        return definition.layout is Layout.FIXED and definition.name != "rten.transpose"

    def _can_follow(self, value: relax.Call, var: relax.Var) -> bool:
        """Whether the operator has constants for one element, or one a channel, beside ``var``."""
        sizes = _shape(var)
        if len(sizes) != 4:
            return False
        others = [a for a in value.args if not _is(a, var)]
        return all(_per_channel(a, static(sizes[1]) or 0) is not None for a in others)

    # -- matrices -------------------------------------------------------------------------------

    def _product(self, var: relax.Var, value: relax.Call) -> relax.Expr:
        x, w, _ = value.args
        attrs = attrs_of(value)
        weight = w.value.numpy()
        groups = attrs["groups"]
        out, channels = weight.shape[:2]
        batch, _, *picture = _sizes(var)
        self._note(
            f"product of planes in place of a convolution: {channels * groups}->{out} of "
            f"{picture[0]}x{picture[1]}"
        )
        if attrs["strides"] != [1, 1]:
            zeros, sizes = relax.ShapeExpr(_i64(0, 0)), relax.ShapeExpr(_i64(*picture))
            x = self.emit(call("slice", x, zeros, sizes, axes=[2, 3], steps=attrs["strides"]))
        pixels = picture[0] * picture[1]
        planes = self._reshaped(x, batch, groups, channels, pixels)
        left = relax.const(weight.reshape(groups, out // groups, channels))
        return self._picture(var, self.emit(call("matmul", left, planes)))

    def _elementwise(self, var: relax.Var, value: relax.Call) -> relax.Expr:
        """The same on the matrices of an operand that has some."""
        found = [self._matrices[a] for a in value.args if a in self._matrices]
        if len(found) != 1 or not all(
            a in self._matrices or isinstance(a, tvm.ir.GenericConst) for a in value.args
        ):
            return value
        _, groups, rows, _ = _sizes(found[0])
        args = []
        for a in value.args:
            if isinstance(a, tvm.ir.GenericConst):
                per_channel = _per_channel(a, groups * rows)
                if per_channel is None:
                    return value
                shape = (groups, rows, 1) if per_channel.size > 1 else ()
                args.append(relax.const(per_channel.reshape(shape)))
            else:
                args.append(self._matrices[a])
        made = tvm.ir.Call(value.op, args, value.attrs, value.ty_args, value.span)
        return self._picture(var, self.emit(made))

    def _picture(self, var: relax.Var, matrices: relax.Var) -> relax.Var:
        """The matrices as a picture like ``var``."""
        picture = self._reshaped(matrices, *_sizes(var))
        self._matrices[picture] = matrices
        return picture

    def _reshaped(self, x: relax.Expr, *sizes: int) -> relax.Var:
        return self.emit(relax.op.reshape(x, relax.ShapeExpr(_i64(*sizes))))


def products_of_planes(mod: tvm.IRModule, note: Callable[[str], None]) -> tvm.IRModule:
    """The module with products in place of such convolutions."""
    return ProductsOfPlanes(note).run(mod)


def _is_product(value: relax.Call) -> bool:
    """Whether the convolution is a product of known sizes: no window, no padding."""
    x, w, pads = value.args
    if not isinstance(w, tvm.ir.GenericConst) or str(x.ty.dtype) != "float32":
        return False
    if str(w.ty.dtype) != "float32" or _sizes(w)[2:] != [1, 1] or 0 in _sizes(w):
        return False
    if any(static(p) != 0 for p in pads.values) or any(s is None for s in map(static, _shape(x))):
        return False
    strides = attrs_of(value)["strides"]
    batch, _, *picture = _sizes(x)
    pixels = [-(-size // stride) for size, stride in zip(picture, strides, strict=True)]
    return batch > 0 and pixels[0] * pixels[1] >= _FEWEST_PIXELS


def _per_channel(operand: relax.Expr, channels: int) -> npt.NDArray[Any] | None:
    """A constant's elements if there is one, or one for each channel of a picture."""
    if not isinstance(operand, tvm.ir.GenericConst):
        return None
    array: npt.NDArray[Any] = operand.value.numpy()
    if array.size == 1 and array.ndim <= 4:
        return array.reshape(-1)
    shape = (1,) * (4 - array.ndim) + array.shape
    return array.reshape(-1) if shape == (1, channels, 1, 1) else None


def _is_reshape(value: relax.Expr) -> bool:
    return isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == "relax.reshape"


def _is(operand: relax.Expr, var: relax.Var) -> bool:
    return isinstance(operand, tvm.ir.Var) and operand.same_as(var)


def _shape(expr: relax.Expr) -> list[tirx.Expr]:
    return list(expr.ty.shape.values) if isinstance(expr.ty, relax.TensorType) else []


def _sizes(expr: relax.Expr) -> list[int]:
    return [int(size.value) for size in _shape(expr)]


def _i64(*sizes: int) -> Sequence[tirx.Expr]:
    return [tirx.const(size, "int64") for size in sizes]
