"""PackWeights: constant weights take the order in which the machine's kernels read them.

All packing is done by NumPy here, once: neither TVM's constant folding nor the finished library
touches a weight again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from rten_aot.targets.common.choices import NOTHING, Algorithm, Choice, Decisions, check
from rten_aot.targets.common.packing import is_dot_products, pays_winograd, width
from rten_aot.targets.common.problems import Problem, total

Array = npt.NDArray[np.float32]


class PackWeights(Rewriter):
    """Operators with constant weights become those that take packed weights.

    ``conv(x, w, layout="NHWC")`` --> ``conv_packed(x, packed)``, ``conv_winograd(x, packed)`` or
    ``depthwise(x, packed)``;
    ``conv_transpose(x, w, layout="NHWC")`` --> ``interleave_phases(conv_packed(x, packed))``;
    ``matmul(a, w)`` --> ``gemm_packed(a, packed)``.

    Operators are annotated with the key of the problem that they are, and with what a record of
    that problem leaves to the schedules to follow.
    """

    def __init__(
        self, machine: Machine, note: Callable[[str], None], choices: Mapping[str, Choice]
    ) -> None:
        super().__init__()
        self._machine = machine
        self._note = note
        self._choices = choices
        self.keys: set[str] = set()
        """Those of the problems met so far."""

    def _decisions(self, problem: Problem) -> Decisions:
        self.keys.add(problem.key)
        return Decisions(problem.key, self._choices.get(problem.key, NOTHING))

    def _width(self, problem: Problem, decisions: Decisions) -> int:
        return decisions.take(
            "width", width(self._machine, problem), "fewest passes, least padding"
        )

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Pack the weight of one operator."""
        definition = op_def(value)
        if definition is None or not _is_float(value.args[0]):
            return value
        match definition.name:
            case "rten.conv":
                return self._conv(value)
            case "rten.conv_transpose":
                return self._conv_transpose(var, value)
            case "rten.matmul":
                return self._matmul(value)
            case "rten.attention":
                return self._attention(var, value)
        return value

    def _conv(self, value: relax.Call) -> relax.Expr:
        attrs = attrs_of(value)
        w = _weight(value.args[1])
        if attrs.get("layout", "NCHW") != "NHWC" or w is None or w.size == 0:
            return value
        x, _, pads = value.args
        groups = attrs["groups"]
        if groups > 1 and w.shape[1] == 1 and _size(x, 3) == groups:
            return self._depthwise(value, w)
        geometry = {"strides": attrs["strides"], "dilations": attrs["dilations"]}
        problem = _convolution(x, w, pads, groups=groups, **geometry)
        decisions = self._decisions(problem)
        decisions.take("algorithm", *self._algorithm(problem))
        return self._convolve(problem, decisions, x, w, pads, geometry)

    def _convolve(
        self,
        problem: Problem,
        decisions: Decisions,
        x: relax.Expr,
        w: Array,
        pads: relax.Expr,
        geometry: Mapping[str, list[int]],
        real_taps: str = "1",
    ) -> relax.Call:
        """The convolution by the algorithm that was decided on."""
        columns = self._width(problem, decisions)
        self._note(str(decisions))
        own = {"out_channels": w.shape[0], "annotations": decisions.annotations()}
        if decisions.choice.algorithm == "winograd":
            return call("conv_winograd", x, relax.const(pack_winograd(w, columns)), pads, **own)
        groups = w.shape[0] // (problem.columns or 1)
        packed = relax.const(pack_conv(w, groups, columns))
        return call("conv_packed", x, packed, pads, real_taps=real_taps, **own, **geometry)

    def _algorithm(self, problem: Problem) -> tuple[Algorithm, str]:
        """The cost model's choice, and why."""
        if not problem.allows_winograd:
            return "direct", "no plain kernel of 3x3"
        (out,), (channels,) = problem.sizes["out"], problem.sizes["channels"]
        pays, why = pays_winograd(self._machine, out or 0, channels or 0, problem.tiles)
        return "winograd" if pays else "direct", why

    def _depthwise(self, value: relax.Call, w: Array) -> relax.Expr:
        x, _, pads = value.args
        geometry = {name: attrs_of(value)[name] for name in ("strides", "dilations")}
        decisions = self._decisions(_window_problem("depthwise", x, w, pads, **geometry))
        packed = relax.const(np.ascontiguousarray(w[:, 0].transpose(1, 2, 0)))
        return call("depthwise", x, packed, pads, annotations=decisions.annotations(), **geometry)

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
        x, padding = value.args[0], relax.ShapeExpr([*before, *after])
        geometry = {"strides": [1, 1], "dilations": [1, 1]}
        problem = _convolution(x, kernels, padding, groups=1, **geometry)
        decisions = self._decisions(problem)
        decisions.take("algorithm", "direct", f"{math.prod(strides)} phases of a transposed one")
        taps_in_phase = Fraction(real, math.prod(strides) * math.prod(taps))
        phases = self._convolve(
            problem, decisions, x, kernels, padding, geometry, str(taps_in_phase)
        )
        first = relax.ShapeExpr([pads[d] - skipped[d] * strides[d] for d in (0, 1)])
        sizes = relax.ShapeExpr(list(var.ty.shape.values)[1:3])
        return call("interleave_phases", self.emit(phases), first, sizes, strides=strides)

    def _matmul(self, value: relax.Call) -> relax.Expr:
        a, b = value.args
        is_transposed = attrs_of(value).get("transpose_b", False)
        w = _weight(b)
        if w is None or w.size == 0 or w.ndim > len(a.ty.shape.values):
            return self._product(value)
        if any(size != 1 for size in w.shape[:-2]):
            return self._product(value)
        w = w.reshape(w.shape[-2:])
        if is_transposed:
            w = w.T
        inner, n = w.shape
        if n == 1:
            return value  # a product with a vector reads the vector as it is
        height = total([_known(size) for size in a.ty.shape.values[:-1]])
        problem = Problem("gemm", {"sizes": (height, inner, n)})
        decisions = self._decisions(problem)
        columns = self._width(problem, decisions)
        self._note(str(decisions))
        packed = relax.const(pack_gemm(w, columns))
        return call("gemm_packed", a, packed, n=n, annotations=decisions.annotations())

    def _attention(self, var: relax.Var, value: relax.Call) -> relax.Expr:
        """Two products whose factors only a run knows."""
        attrs = attrs_of(value)
        q, k = (
            tuple(_known(x.ty.shape.values[a]) for a in attrs[axes])
            for x, axes in zip(value.args, ("q_axes", "k_axes"), strict=False)
        )
        channels = _known(var.ty.shape.values[attrs["out_axes"].index(len(q) - 1)])
        sizes = {"queries": q, "keys": (k[-1],), "channels": (channels,)}
        decisions = self._decisions(Problem("attention", sizes))
        return call("attention", *value.args, **attrs | {"annotations": decisions.annotations()})

    def _product(self, value: relax.Call) -> relax.Expr:
        """A product of two matrices that only a run knows: nothing to pack."""
        a, b = value.args
        attrs = attrs_of(value)
        if not _is_float(b):
            return value
        kind = "matmul_transposed" if attrs.get("transpose_b", False) else "matmul"
        sizes = {
            name: tuple(_known(size) for size in factor.ty.shape.values)
            for name, factor in (("left", a), ("right", b))
        }
        problem = Problem(kind, sizes)
        if is_dot_products(sizes["left"][-2], problem.columns, kind == "matmul_transposed"):
            return value
        decisions = self._decisions(problem)
        return call("matmul", a, b, annotations=decisions.annotations(), **attrs)


def pack_weights(
    mod: tvm.IRModule,
    machine: Machine,
    note: Callable[[str], None],
    choices: Mapping[str, Choice] | None = None,
) -> tvm.IRModule:
    """The module with packed weights; ``note`` takes one line for each decision.

    ``choices`` are by the keys of problems; the cost model decides what they leave open.

    Raises:
        CompileError: a choice is none that kernels can be made of.
    """
    choices = choices or {}
    for key, choice in choices.items():
        check(machine, key, choice)
    rewriter = PackWeights(machine, note, choices)
    packed = rewriter.run(mod)
    if choices:
        used = len(rewriter.keys & choices.keys())
        note(f"tuning: {used} of {len(choices)} records are of problems in this model")
    return packed


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


def _convolution(
    x: relax.Expr, w: Array, pads: relax.Expr, *, groups: int, **geometry: Sequence[int]
) -> Problem:
    problem = _window_problem("conv", x, w, pads, **geometry)
    return Problem("conv", {**problem.sizes, "groups": (groups,)})


def _window_problem(
    kind: str, x: relax.Expr, w: Array, pads: relax.Expr, **geometry: Sequence[int]
) -> Problem:
    """The problem of moving the window of OIHW weights over an NHWC image."""
    return Problem(
        kind,
        {
            "channels": (_size(x, 3),),
            "out": (w.shape[0],),
            "kernel": w.shape[2:],
            **{name: tuple(sizes) for name, sizes in geometry.items()},
            "pads": tuple(_known(size) for size in pads.values),
            "image": tuple(_size(x, axis) for axis in (0, 1, 2)),
        },
    )


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
