"""PackWeights: constant weights take the order in which the machine's kernels read them.

All packing is done by NumPy here, once: neither TVM's constant folding nor the finished library
touches a weight again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

from rten_aot.dialect.registry import attrs_of, call, op_def
from rten_aot.dialect.winograd import transform_weight
from rten_aot.passes.base import Rewriter
from rten_aot.targets.base import Machine
from rten_aot.targets.common.packing import columns, pays_winograd

Array = npt.NDArray[np.float32]

_GEOMETRY = ("groups", "strides", "dilations")


class PackWeights(Rewriter):
    """Operators with constant weights become those that take packed weights.

    ``conv(x, w, layout="NHWC")`` --> ``conv_packed(x, packed)``, ``conv_winograd(x, packed)`` or
    ``depthwise(x, packed)``;
    ``conv_transpose(x, w, layout="NHWC")`` --> ``interleave_phases(conv_packed(x, packed))``;
    ``matmul(a, w)`` --> ``gemm_packed(a, packed)``.
    """

    def __init__(self, machine: Machine, note: Callable[[str], None]) -> None:
        super().__init__()
        self._machine = machine
        self._note = note

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Pack the weight of one operator."""
        definition = op_def(value)
        if definition is None or not _is_float(value.args[0]):
            return value
        match definition.name:
            case "rten.conv":
                return self._conv(var, value)
            case "rten.conv_transpose":
                return self._conv_transpose(var, value)
            case "rten.matmul":
                return self._matmul(value)
        return value

    def _conv(self, var: relax.Var, value: relax.Call) -> relax.Expr:
        attrs = attrs_of(value)
        w = _weight(value.args[1])
        if attrs.get("layout", "NCHW") != "NHWC" or w is None or w.size == 0:
            return value
        x, _, pads = value.args
        groups = attrs["groups"]
        geometry = {"strides": attrs["strides"], "dilations": attrs["dilations"]}
        if groups > 1 and w.shape[1] == 1 and _size(x, 3) == groups:
            self._note(f"depthwise convolution: {_text(w)} as it lies in memory")
            packed = np.ascontiguousarray(w[:, 0].transpose(1, 2, 0))
            return call("depthwise", x, relax.const(packed), pads, **geometry)
        width = columns(self._machine, w.shape[0] // groups)
        if self._is_winograd(var, value, w):
            self._note(f"convolution: {_text(w)} transformed, in blocks of {width} channels")
            packed = pack_winograd(w, width)
            return call("conv_winograd", x, relax.const(packed), pads, out_channels=w.shape[0])
        self._note(f"convolution: {_text(w)} in blocks of {width} channels")
        packed = pack_conv(w, groups, width)
        return call(
            "conv_packed", x, relax.const(packed), pads, out_channels=w.shape[0], **geometry
        )

    def _is_winograd(self, var: relax.Var, value: relax.Call, w: Array) -> bool:
        attrs = attrs_of(value)
        if w.shape[2:] != (3, 3) or [attrs[k] for k in _GEOMETRY] != [1, [1, 1], [1, 1]]:
            return False
        sizes = [_size(var, axis) for axis in (0, 1, 2)]
        tiles = None
        if None not in sizes:
            batch, height, width = sizes
            tiles = batch * -(-height // 2) * -(-width // 2)
        return pays_winograd(self._machine, w.shape[0], w.shape[1], tiles)

    def _conv_transpose(self, var: relax.Var, value: relax.Call) -> relax.Expr:
        attrs = attrs_of(value)
        w = _weight(value.args[1])
        pads = _fixed(value.args[2])
        if attrs.get("layout", "NCHW") != "NHWC" or w is None or w.size == 0 or pads is None:
            return value
        if attrs["groups"] != 1:
            self._note(f"transposed convolution: {_text(w)} not packed, because it is grouped")
            return value
        strides, more = attrs["strides"], attrs["output_padding"]
        real = w.shape[2] * w.shape[3]
        w = dilated(w, attrs["dilations"])
        taps = [-(-w.shape[2 + d] // strides[d]) for d in (0, 1)]
        # Rows of phases that the padding cuts off anyway are not computed.
        skipped = [min(pads[d] // strides[d], taps[d] - 1) for d in (0, 1)]
        before = [taps[d] - 1 - skipped[d] for d in (0, 1)]
        after = [max(0, (w.shape[2 + d] - 1 + more[d] - pads[d + 2]) // strides[d]) for d in (0, 1)]
        kernels = phase_kernels(w, strides)
        width = columns(self._machine, kernels.shape[0])
        self._note(
            f"transposed convolution: {_text(w)} as {strides[0] * strides[1]} phases"
            f" in blocks of {width} channels"
        )
        phases = call(
            "conv_packed",
            value.args[0],
            relax.const(pack_conv(kernels, 1, width)),
            relax.ShapeExpr([*before, *after]),
            out_channels=kernels.shape[0],
            strides=[1, 1],
            dilations=[1, 1],
            real_taps=str(Fraction(real, math.prod(strides) * math.prod(taps))),
        )
        first = relax.ShapeExpr([pads[d] - skipped[d] * strides[d] for d in (0, 1)])
        sizes = relax.ShapeExpr(list(var.ty.shape.values)[1:3])
        return call("interleave_phases", self.emit(phases), first, sizes, strides=strides)

    def _matmul(self, value: relax.Call) -> relax.Expr:
        a, b = value.args
        w = _weight(b)
        if w is None or w.size == 0 or w.ndim > len(a.ty.shape.values):
            return value
        if any(size != 1 for size in w.shape[:-2]):
            return value
        w = w.reshape(w.shape[-2:])
        if attrs_of(value).get("transpose_b", False):
            w = w.T
        inner, n = w.shape
        if n == 1:
            return value  # a product with a vector reads the vector as it is
        leading = [_known(size) for size in a.ty.shape.values[:-1]]
        height = None if None in leading else math.prod(leading)
        width = columns(self._machine, n, wide=True, height=height, depth=inner)
        self._note(f"matrix product: {inner}x{n} in blocks of {width} columns")
        return call("gemm_packed", a, relax.const(pack_gemm(w, width)), n=n)


def pack_weights(mod: tvm.IRModule, machine: Machine, note: Callable[[str], None]) -> tvm.IRModule:
    """The module with packed weights; ``note`` takes one line for each decision."""
    return PackWeights(machine, note).run(mod)


def pack_conv(w: Array, groups: int, width: int) -> Array:
    """OIHW weights as ``[groups, blocks, h, w, in, width]``, padded with zeros."""
    out, channels, height, breadth = w.shape
    per_group = out // groups
    blocks = -(-per_group // width)
    padded = np.zeros((groups, blocks * width, channels, height, breadth), np.float32)
    padded[:, :per_group] = w.reshape(groups, per_group, channels, height, breadth)
    split = padded.reshape(groups, blocks, width, channels, height, breadth)
    return np.ascontiguousarray(split.transpose(0, 1, 4, 5, 3, 2))


def pack_winograd(w: Array, width: int) -> Array:
    """OIHW weights of 3x3, transformed, as ``[16, blocks, in, width]``."""
    transformed = transform_weight(w)
    return pack_conv(transformed.reshape(-1, w.shape[1], 1, 1), len(transformed), width)[:, :, 0, 0]


def pack_gemm(w: Array, width: int) -> Array:
    """A matrix as ``[blocks, inner, width]``, padded with zeros."""
    inner, n = w.shape
    blocks = -(-n // width)
    padded = np.zeros((inner, blocks * width), np.float32)
    padded[:, :n] = w
    return np.ascontiguousarray(padded.reshape(inner, blocks, width).transpose(1, 0, 2))


def dilated(w: Array, dilations: Sequence[int]) -> Array:
    """The kernel with the zeros that its dilation leaves between taps."""
    if list(dilations) == [1, 1]:
        return w
    sizes = [(w.shape[2 + d] - 1) * dilations[d] + 1 for d in (0, 1)]
    spread = np.zeros((*w.shape[:2], *sizes), np.float32)
    spread[:, :, :: dilations[0], :: dilations[1]] = w
    return spread


def phase_kernels(w: Array, strides: Sequence[int]) -> Array:
    """The OIHW kernels, one for each phase, whose convolutions make up a transposed one.

    Output position ``q = stride * t + phase`` gets tap ``phase + stride * j`` of input ``t - j``.
    """
    channels, out, height, breadth = w.shape
    taps = [-(-height // strides[0]), -(-breadth // strides[1])]
    full = np.zeros((channels, out, taps[0] * strides[0], taps[1] * strides[1]), np.float32)
    full[:, :, :height, :breadth] = w
    split = full.reshape(channels, out, taps[0], strides[0], taps[1], strides[1])
    # [channels, out, j, phase, j, phase] -> [phase, phase, out, channels, j backwards, twice]
    kernels = split.transpose(3, 5, 1, 0, 2, 4)[..., ::-1, ::-1]
    return np.ascontiguousarray(kernels.reshape(-1, channels, *taps))


def _weight(expr: relax.Expr) -> Array | None:
    """The constant float32 array, or None."""
    if not isinstance(expr, tvm.ir.GenericConst) or not _is_float(expr):
        return None
    array: Array = expr.value.numpy()
    return array


def _is_float(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == "float32"


def _size(expr: relax.Expr, axis: int) -> int | None:
    return _known(expr.ty.shape.values[axis])


def _known(size: tirx.Expr) -> int | None:
    return int(size.value) if isinstance(size, tirx.IntImm) else None


def _fixed(expr: relax.Expr) -> list[int] | None:
    values = list(expr.values)
    if not all(isinstance(v, tirx.IntImm) for v in values):
        return None
    return [int(v.value) for v in values]


def _text(w: npt.NDArray[Any]) -> str:
    return "x".join(map(str, w.shape))
