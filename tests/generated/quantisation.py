"""8-bit integers: to and from floats, and what sums products of them exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.generated.generator import SIZES, Generator
from tests.ops import test_conv, test_quantize
from tests.support.cases import MODES, Array, Case

BYTES = ("uint8", "int8")


def integers(g: Generator, *shape: int, dtype: str) -> Array:
    """Numbers from all of the type's range, often from its ends."""
    info = np.iinfo(dtype)
    low = g.pick(info.min, info.min, info.max - 1)
    return g.numbers.integers(low, info.max, shape, dtype, endpoint=True)


def _shape(g: Generator) -> list[int]:
    shape = [
        g.pick(*(SIZES if i == 0 else [1, 2, 3, 5, 8, 17])) for i in range(g.random.randint(0, 4))
    ]
    if shape and g.chance(0.08):
        shape[g.random.randrange(len(shape))] = 0
    return shape


def _scales(g: Generator, shape: list[int]) -> tuple[list[int], int]:
    """The shape of scales for a tensor, and the attribute "axis"."""
    axis = g.random.randrange(-len(shape), len(shape)) if shape else g.pick(0, 1)
    if not shape or g.chance(0.4):
        return g.pick([], [1]), g.pick(axis, 1)
    return [shape[axis]], axis


def quantize(g: Generator, name: str) -> Case:
    shape = _shape(g)
    sizes, axis = _scales(g, shape)
    scale = g.numbers.choice(np.float32([0.1, 0.25, 0.5, 1, 3, 1e-3]), sizes)
    x = (g.array(*shape) * g.pick(1, 40, 400)).astype("float32")
    halves = np.rint(x * 2) / 2 * np.float32(0.5)  # which many scales make a tie of
    x = np.where(g.numbers.random(shape) < 0.5, halves.astype("float32"), x)
    special = np.float32([np.nan, np.inf, -np.inf, 3e38, -1e30, -0.0])
    x = np.where(g.numbers.random(shape) < 0.1, g.numbers.choice(special, shape), x)
    dtype = g.pick(*BYTES)
    if g.chance(0.1):
        x = g.numbers.integers(-500, 500, shape).astype("int32")
    operands = [np.asarray(x), np.asarray(scale)]
    rten: dict[str, Any] = {"axis": axis}
    if g.chance(0.7):
        operands.append(integers(g, *sizes, dtype=dtype))
    elif g.chance(0.5):
        rten["output_dtype"] = {"uint8": "UInt8", "int8": "Int8"}[dtype]
    else:
        dtype = "uint8"
    expected = test_quantize.quantize(axis, dtype)
    return Case(name, "QuantizeLinear", operands, expected, rten=rten, modes=MODES)


def dequantize(g: Generator, name: str) -> Case:
    shape = _shape(g)
    sizes, axis = _scales(g, shape)
    dtype = g.pick(*BYTES, *BYTES, "int32")
    scale = g.numbers.choice(np.float32([0.1, 0.25, -0.5, 1, 3, 1e30]), sizes)
    operands = [integers(g, *shape, dtype=dtype), np.asarray(scale)]
    if g.chance(0.7):
        operands.append(integers(g, *sizes, dtype=dtype))
        if dtype == "int32":  # the difference fits
            operands[2] = np.asarray(operands[2] // 4)
            operands[0] = operands[0] // 4
    expected = test_quantize.dequantize(axis)
    return Case(name, "DequantizeLinear", operands, expected, {"axis": axis}, modes=MODES)


def dynamic_quantize(g: Generator, name: str) -> Case:
    x = g.array(*_shape(g)) * np.float32(g.pick(1, 1, 0, 1e-3, 1e10))
    x += np.float32(g.pick(0, 0, 5, -5) * np.abs(x).max(initial=0))
    if g.chance(0.3):
        x = np.rint(x)
    expected = test_quantize.dynamic
    return Case(name, "DynamicQuantizeLinear", [x], expected, outputs=3, modes=MODES)


def _along(zero: Array | None, shape: tuple[int, ...]) -> Any:
    """Zero points to subtract: a vector lies along ``shape``, more axes are as they are to be."""
    if zero is None:
        return 0
    wide = zero.astype("int64")
    return wide if zero.ndim > 1 else wide.reshape(shape if zero.size > 1 else ())


def matmul_integer(g: Generator, name: str) -> Case:
    m, n = g.pick(*SIZES), g.pick(*SIZES)
    k = g.pick(*SIZES, 0, 100, 130, 513, 2000)
    batch = [g.pick(1, 2, 3), g.pick(1, 4)][: g.pick(0, 0, 1, 2)]
    other = [g.pick(1, b) for b in batch] if g.chance(0.5) else []
    dtypes = g.pick(*BYTES), g.pick(*BYTES)
    a, b = integers(g, *batch, m, k, dtype=dtypes[0]), integers(g, *other, k, n, dtype=dtypes[1])
    if g.chance(0.08):
        a = a.reshape(-1, k)[0] if a.size else a
    rows = 1 if a.ndim == 1 else m

    def zero(count: int, each: list[int], dtype: str) -> Array | None:
        """For all, for each row or column, or for each of every matrix."""
        return None if g.chance(0.3) else integers(g, *g.pick([], [1], [count], each), dtype=dtype)

    each = [[rows] if a.ndim == 1 else [*batch, m, 1], [*other, 1, n]]
    zeros = [zero(*c) for c in zip((rows, n), each, dtypes, strict=True)]

    def expected(
        x: Array, y: Array, x_zero: Array | None = None, y_zero: Array | None = None
    ) -> Array:
        left = x.astype("int64") - _along(x_zero, (-1, 1) if x.ndim > 1 else (-1,))
        right = y.astype("int64") - _along(y_zero, (1, -1))
        return np.asarray(np.matmul(left.reshape(x.shape), right)).astype("int32")

    operands: list[Array | None] = [a, b, *zeros]
    while operands[-1] is None:
        operands.pop()
    return Case(name, "MatMulInteger", operands, expected, modes=MODES)


def conv_integer(g: Generator, name: str) -> Case:
    rank = g.pick(1, 2, 2)
    kernel = [g.pick(1, 2, 3, 3, 5) for _ in range(rank)]
    strides = [g.pick(1, 1, 2, 3) for _ in range(rank)]
    dilations = [g.pick(1, 1, 1, 2) for _ in range(rank)]
    same = g.chance(0.2)
    pads = [g.random.randrange(3) for _ in range(2 * rank)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    least = [1 if same else max(1, r - pads[i] - pads[i + rank]) for i, r in enumerate(reach)]
    sizes = [g.random.randrange(n, n + 12) for n in least]
    groups, own, out = g.pick(1, 1, 2, 3), g.pick(1, 2, 3, 8, 16, 17), g.pick(1, 2, 3, 8, 16, 33)
    if g.chance(0.2):  # depthwise
        groups, own, out = own, 1, g.pick(1, 1, 2)
    dtypes = g.pick(*BYTES), g.pick(*BYTES)
    x = integers(g, g.pick(1, 1, 2), own * groups, *sizes, dtype=dtypes[0])
    w = integers(g, out * groups, own, *kernel, dtype=dtypes[1])
    zeros = [
        None if g.chance(0.3) else integers(g, *g.pick([], [1], shape), dtype=dtype)
        for shape, dtype in zip(([1], [out * groups]), dtypes, strict=True)
    ]
    if same:
        pads = test_conv.same_pads(sizes, reach, strides)

    def expected(
        v: Array, weights: Array, v_zero: Array | None = None, w_zero: Array | None = None
    ) -> Array:
        left = v.astype("int64") - _along(v_zero, ())
        right = weights.astype("int64") - _along(w_zero, (-1, *[1] * (rank + 1)))
        return test_conv.convolve(left, right, pads, strides, dilations, groups).astype("int32")

    rten = {
        "auto_pad": "Same" if same else "NotSet",
        "pads": [0] * len(pads) if same else pads,
        "strides": strides,
        "dilations": dilations,
        "groups": groups,
    }
    operands: list[Array | None] = [x, w, *zeros]
    while operands[-1] is None:
        operands.pop()
    fixed = [(1, d) for d in range(w.ndim) if d != 1]
    return Case(name, "ConvInteger", operands, expected, rten=rten, fixed=fixed, modes=MODES)


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "quantize": quantize,
    "dequantize": dequantize,
    "dynamic_quantize": dynamic_quantize,
    "matmul_integer": matmul_integer,
    "conv_integer": conv_integer,
}
