"""Draws operators together with operands that only a run can find wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.generated import arithmetic, indexing
from tests.generated.generator import Generator
from tests.support.cases import Array, Case, Mode

MIN, MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class Failure:
    """A case that works, and inputs of it that must fail."""

    case: Case
    wrong: Sequence[Array | None]


def _with(case: Case, place: int, x: Array) -> Failure:
    wrong = list(case.inputs)
    wrong[place] = x
    return Failure(case, wrong)


# -- indices out of range --------------------------------------------------------------------------


def _sizes(case: Case) -> list[int]:
    """The size that each index, or each column of index tuples, counts."""
    x, places = case.inputs[0], case.inputs[1]
    assert x is not None
    assert places is not None
    if case.op not in ("GatherND", "ScatterND"):
        return [x.shape[case.attrs["axis"]]]
    batch = case.attrs.get("batch_dims", 0)
    return list(x.shape[batch : batch + places.shape[-1]])


def index(g: Generator, name: str) -> Failure:
    """One of the indices does not exist."""
    draw = g.pick(
        indexing.gather,
        indexing.gather_elements,
        indexing.gather_nd,
        indexing.scatter_elements,
        indexing.scatter_nd,
    )
    while True:
        case = draw(g, name)
        x, places = case.inputs[:2]
        if x.size and places.size:  # where there is nothing to read or write, none is looked at
            break
    sizes, wrong = _sizes(case), places.copy()
    position = g.random.randrange(places.size)
    size = sizes[position % places.shape[-1] if len(sizes) > 1 else 0]
    wrong.flat[position] = g.pick(size, -size - 1, size + 1000, MAX, MIN)
    return _with(case, 1, wrong)


# -- operands that are sizes, axes or counts -------------------------------------------------------

# Operator, attributes, operands that are right, and which operand with which values is wrong.
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _i32(*values: int) -> Array:
    return np.array(values, np.int32)


def _scalar(value: float, dtype: str = "int32") -> Array:
    return np.array(value, dtype)


OPERANDS: tuple[tuple[str, dict[str, Any], list[Array], int, list[Array]], ...] = (
    ("Reshape", {}, [X, _i32(4, -1)], 1, [_i32(5, -1), _i32(-1, -1), _i32(7, 2), _i32(-2, 12)]),
    ("Expand", {}, [X, _i32(2, 3, 4)], 1, [_i32(2, 2, 4), _i32(-1, 3, 4), _i32(2, 3, MAX)]),
    ("Tile", {}, [X, _i32(1, 2, 1)], 1, [_i32(1, -1, 1), _i32(MIN, 1, 1)]),
    ("Slice", {}, [X, _i32(0), _i32(2), _i32(1), _i32(1)], 4, [_i32(0)]),
    ("Slice", {}, [X, _i32(0), _i32(2), _i32(1), _i32(1)], 3, [_i32(3), _i32(-4), _i32(MIN)]),
    ("Slice", {}, [X, _i32(0, 0), _i32(2, 1), _i32(1, 0)], 3, [_i32(1, 1), _i32(1, -2)]),
    ("Split", {"axis": 2}, [X, _i32(1, 3)], 1, [_i32(1, 2), _i32(-1, 5), _i32(4, 1)]),
    ("Pad", {}, [X, _i32(0, 1, 0, 0, 2, 1)], 1, [_i32(0, -2, 0, 0, -2, 0), _i32(*[MIN] * 6)]),
    ("Pad", {"mode": "reflect"}, [X[:, :1], _i32(*[1] * 6)], 1, [_i32(0, -1, 0, 0, 1, 0)]),
    ("Unsqueeze", {}, [X, _i32(0, -1)], 1, [_i32(0, 5), _i32(1, 1), _i32(1, -4), _i32(MIN, 0)]),
    ("Squeeze", {}, [X[:1], _i32(0)], 1, [_i32(1), _i32(3), _i32(-4)]),
    ("TopK", {"axis": 1}, [X, _i32(2)], 1, [_i32(4), _i32(-1), _i32(MAX)]),
    ("Range", {}, [_scalar(0), _scalar(5), _scalar(2)], 2, [_scalar(0)]),
    ("Range", {}, [_scalar(v, "float32") for v in (0, 5, 2)], 2,
     [_scalar(0, "float32"), _scalar(np.nan, "float32")]),
    ("ConstantOfShape", {"value": numpy_helper.from_array(np.float32([1]))}, [_i32(2, 3)], 0,
     [_i32(2, -1), _i32(MIN, 0)]),
    ("OneHot", {}, [_i32(0, 2), _scalar(3), np.float32([0, 1])], 1, [_scalar(-1), _scalar(MIN)]),
    ("Div", {}, [_i32(7, -7, 9), _i32(2, 3, -1)], 1, [_i32(2, 0, 1)]),
    ("Mod", {}, [_i32(7, -7, 9), _i32(2, 3, -1)], 1, [_i32(0, 3, 1)]),
)  # fmt: skip


def operand(g: Generator, name: str) -> Failure:
    """An operand that holds sizes, axes or divisors holds what cannot be."""
    op, attrs, inputs, place, wrong = g.pick(*OPERANDS)
    outputs = 2 if op in ("Split", "TopK") else 1
    vectors = [(i, 0) for i, x in enumerate(inputs) if x.ndim == 1]
    case = Case(name, op, inputs, [], attrs, outputs=outputs, fixed=vectors)
    return _with(case, place, g.pick(*wrong))


def divisor(g: Generator, name: str) -> Failure:
    """One of the divisors is 0."""
    while True:
        case = arithmetic.division(g, name)
        a, b = case.inputs
        assert a is not None
        assert b is not None
        if b.dtype.kind in "iu" and math.prod(np.broadcast_shapes(a.shape, b.shape)):
            break
    wrong = b.copy()
    wrong.flat[g.random.randrange(b.size)] = 0
    return _with(case, 1, wrong)


# -- sizes that do not fit each other --------------------------------------------------------------

# Operator, attributes, shapes, and the input and axis whose size must not change alone.
SHAPES: tuple[tuple[str, dict[str, Any], list[tuple[int, ...]], list[tuple[int, int]]], ...] = (
    ("Add", {}, [(3, 4), (3, 4)], [(0, 0), (0, 1), (1, 0), (1, 1)]),
    ("Mul", {}, [(2, 3, 4), (4,)], [(0, 2), (1, 0)]),
    ("Max", {}, [(2, 3), (2, 3), (3,)], [(0, 1), (1, 0), (2, 0)]),
    ("MatMul", {}, [(2, 3), (3, 4)], [(0, 1), (1, 0)]),
    ("MatMul", {}, [(2, 2, 3), (2, 3, 4)], [(0, 0), (0, 2), (1, 0), (1, 1)]),
    ("Gemm", {"transB": 1}, [(2, 3), (4, 3), (4,)], [(0, 1), (1, 1), (1, 0), (2, 0)]),
    ("Concat", {"axis": 1}, [(2, 3), (2, 5)], [(0, 0), (1, 0)]),
    ("Conv", {}, [(1, 3, 5, 5), (4, 3, 3, 3), (4,)], [(0, 1), (2, 0)]),
    ("ConvTranspose", {}, [(1, 3, 5, 5), (3, 2, 3, 3)], [(0, 1)]),
    ("LayerNormalization", {}, [(2, 3, 4), (4,), (4,)], [(0, 2), (1, 0), (2, 0)]),
    ("InstanceNormalization", {}, [(2, 3, 4), (3,), (3,)], [(0, 1), (1, 0), (2, 0)]),
    ("BatchNormalization", {}, [(2, 3, 4), *[(3,)] * 4], [(0, 1), (2, 0), (4, 0)]),
    ("PRelu", {}, [(2, 3), (3,)], [(0, 1), (1, 0)]),
    ("Einsum", {"equation": "ij,jk->ik"}, [(2, 3), (3, 4)], [(0, 1), (1, 0)]),
)


def sizes(g: Generator, name: str) -> Failure:
    """A size of one operand is not that of another."""
    op, attrs, shapes, places = g.pick(*SHAPES)
    place, axis = g.pick(*places)
    inputs = [np.abs(g.array(*shape)) for shape in shapes]
    changed = list(shapes[place])
    changed[axis] += g.pick(1, 2, 5, 13) if g.chance(0.7) else -changed[axis]
    kernel = [(1, i) for i in range(4)] if op.startswith("Conv") else []
    modes: tuple[Mode, ...] = ("dynamic",)
    case = Case(name, op, inputs, [], attrs, fixed=kernel, modes=modes)
    return _with(case, place, np.abs(g.array(*changed)))


FAILURES: dict[str, Callable[[Generator, str], Failure]] = {
    "index": index,
    "operand": operand,
    "divisor": divisor,
    "sizes": sizes,
}
