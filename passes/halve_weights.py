"""HalveWeights: large constant weights are stored as float16."""

from __future__ import annotations

import string
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from rten_aot.dialect.registry import PREFIX, attrs_of, op_def
from rten_aot.passes.base import Rewriter

Array = npt.NDArray[np.float32]
Half = npt.NDArray[np.float16]

_LEAST_BYTES = 4096
"""Smaller weights stay as they are: biases, scales, small kernels."""
_PRECISION = 2.0**-11
"""The greatest relative error of rounding to float16, but for numbers that are subnormal there."""
_NOISE = 2.0**-20
"""What sums of some hundred terms lose in float32, as a part of what is summed."""


class HalveWeights(Rewriter):
    """Operators with large constant weights get them as float16, and compute in float32.

    ``gemm_packed(a, w)`` --> ``gemm_packed(a, half(w))``; also ``conv_packed``, ``conv_winograd``,
    ``gather``, whose table is the weight, and recurrent layers.

    Numbers are rounded to nearest. A weight stays float32 if it holds some that are too large for
    float16, infinite or NaN, or if an output channel (of a table a slice) has such small ones that,
    as a vector, it loses more than float16's precision, 2**-11 of its length. Not counted are
    channels whose loss vanishes beside the longest one: float32 sums lose as much there.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note
        self._halves: dict[relax.Constant, relax.Constant | None] = {}
        self.before = 0
        """Bytes of the weights that were looked at."""
        self.after = 0
        """What they take now."""

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Halve the weights of one operator."""
        definition = op_def(value)
        if definition is None:
            return value
        match definition.name.removeprefix(PREFIX):
            case "conv_packed":
                return self._halved(value, [1], (0, 1, 5))
            case "conv_winograd":
                return self._halved(value, [1], (1, 3))
            case "gemm_packed":
                return self._halved(value, [1], (0, 2))
            case "lstm" | "gru":
                return self._halved(value, [1], (0, 1, 3))
            case "gru_reset_first":
                return self._halved(value, [1, 2], (0, 1, 3))
            case "gather":
                return self._halved(value, [0], (attrs_of(value)["axis"],))
        return value

    def _halved(self, call: relax.Call, places: list[int], axes: tuple[int, ...]) -> relax.Call:
        """The call with the operands at ``places`` halved; they have their channels on ``axes``."""
        name = call.op.name.removeprefix(PREFIX)
        operands = [
            self._operand_halved(operand, name, axes) if place in places else operand
            for place, operand in enumerate(call.args)
        ]
        return tvm.ir.Call(call.op, operands, call.attrs, call.ty_args, call.span)

    def _operand_halved(self, weight: relax.Expr, name: str, axes: tuple[int, ...]) -> relax.Expr:
        if not isinstance(weight, tvm.ir.GenericConst) or str(weight.ty.dtype) != "float32":
            return weight
        if weight not in self._halves:
            self._halves[weight] = self._half(weight.value.numpy(), name, axes)
        half = self._halves[weight]
        return weight if half is None else half

    def _half(self, array: Array, name: str, axes: tuple[int, ...]) -> relax.Constant | None:
        if array.nbytes < _LEAST_BYTES:
            return None
        self.before += array.nbytes
        half, fault = rounded(array, axes, noise=0.0 if name == "gather" else _NOISE)
        if fault is not None:
            self.after += array.nbytes
            shape = "x".join(map(str, array.shape))
            self._note(f"{name} {shape}: weights stay fp32, because {fault}")
            return None
        self.after += half.nbytes
        return relax.const(half)


def halve_weights(mod: tvm.IRModule, note: Callable[[str], None]) -> tvm.IRModule:
    """The module with halved weights; ``note`` takes a line for each that stays, and a sum."""
    rewriter = HalveWeights(note)
    halved = rewriter.run(mod)
    note(f"weights in fp16: {rewriter.after} bytes in place of {rewriter.before}")
    return halved


def rounded(array: Array, axes: tuple[int, ...], noise: float = _NOISE) -> tuple[Half, str | None]:
    """The numbers as float16, and what speaks against taking them.

    ``axes`` are those of the parts, such as output channels, that must each keep their precision;
    but for what is ``noise`` beside the longest.
    """
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    if not np.isfinite(array).all():
        return half, "some are no finite numbers"
    if not np.isfinite(half).all():
        return half, f"{np.abs(array).max():.3g} is too large for fp16"
    length = _lengths(array, axes)
    allowed = np.maximum(_PRECISION * length, noise * length.max(initial=0.0))
    lossy = _lengths(half.astype(np.float32) - array, axes) > allowed
    if lossy.any():
        return half, f"the numbers of {lossy.sum()} of its channels are too small for fp16"
    return half, None


def _lengths(array: Array, axes: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """The length of each part as a vector; squares of tiny numbers need float64."""
    every = string.ascii_letters[: array.ndim]
    kept = "".join(every[axis] for axis in axes)
    squares = np.einsum(f"{every},{every}->{kept}", array, array, dtype=np.float64)
    lengths: npt.NDArray[np.float64] = np.sqrt(squares)
    return lengths
