"""Operators that pick or place elements by index, and those that make or find indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tests.generated.generator import Generator
from tests.ops import test_gather, test_generate, test_nonzero, test_reduce
from tests.support.cases import MODES, Array, Case

MIN, MAX = -(2**31), 2**31 - 1
REDUCTIONS = ("none", "add", "mul", "min", "max")


def indices(g: Generator, shape: Sequence[int], size: int) -> Array:
    """Positions on an axis, counted from either end; none if the axis is empty."""
    if size == 0:
        shape = [*shape[:-1], 0] if shape else [0]
    return g.numbers.integers(-size, max(size, 1), shape).astype(np.int32)


def gather(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1))
    axis = g.axis(x.ndim)
    size = x.shape[axis]
    places = indices(g, g.shape(0, min(6 - x.ndim + 1, 3)), size)
    if size and g.chance(0.25):  # consecutive
        first = g.random.randrange(size)
        places = np.arange(first, g.random.randint(first, size)) - g.pick(0, size)
    return test_gather.gather(name, x, places, axis)


def smaller(g: Generator, shape: Sequence[int], axis: int) -> list[int]:
    """Sizes of indices that fit into ``shape``, of any size along the axis."""
    sizes = [n if g.chance(0.7) else g.random.randint(min(n, 1), n) for n in shape]
    sizes[axis] = g.pick(0, 1, 2, 3, 9) if g.chance(0.8) else shape[axis]
    if shape[axis] == 0:
        sizes[axis] = 0
    return sizes


def gather_elements(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1))
    axis = g.axis(x.ndim)
    places = g.numbers.integers(
        -x.shape[axis], max(x.shape[axis], 1), smaller(g, x.shape, axis % x.ndim)
    )
    case = test_gather.gather_elements(name, x, places, axis)
    return replace(case, modes=MODES)


def tuples(g: Generator, x: Array, batch: int, outer: Sequence[int], depth: int) -> Array:
    """Index tuples of ``depth`` elements into ``x`` behind its batch axes."""
    sizes = x.shape[batch : batch + depth]
    if 0 in sizes:
        outer = [*outer[:-1], 0] if len(outer) > batch else [*outer, 0]
    columns = [g.numbers.integers(-n, max(n, 1), outer) for n in sizes]
    return np.stack(columns, -1) if columns else np.zeros((*outer, 0))


def gather_nd(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1, 5))
    batch = g.random.randrange(min(x.ndim, 3)) if g.chance(0.4) else 0
    outer = [*x.shape[:batch], *g.shape(0, 2)]
    places = tuples(g, x, batch, outer, g.random.randint(1, x.ndim - batch))
    return replace(test_gather.gather_nd(name, x, places, batch), modes=MODES)


def scatter_elements(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1, 5))
    axis = g.axis(x.ndim)
    places = g.numbers.integers(
        -x.shape[axis], max(x.shape[axis], 1), smaller(g, x.shape, axis % x.ndim)
    )
    updates = g.values(list(places.shape), x.dtype.name)
    case = test_gather.elements(name, x, places, updates, axis, g.pick(*REDUCTIONS))
    return replace(case, modes=MODES)


def scatter_nd(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1, 5))
    depth = g.random.randint(g.pick(0, 1, 1, 1), x.ndim)
    places = tuples(g, x, 0, g.shape(0, 3), depth)
    updates = g.values([*places.shape[:-1], *x.shape[depth:]], x.dtype.name)
    return replace(test_gather.slices(name, x, places, updates, g.pick(*REDUCTIONS)), modes=MODES)


def one_hot(g: Generator, name: str) -> Case:
    depth = g.pick(0, 1, 2, 3, 8, 17, 40)
    shape = g.shape(0, 4)
    places = g.numbers.integers(-depth - 2, depth + 3, shape).astype(g.pick("int32", "float32"))
    pair = g.values([2], "float32", "int32")
    axis = g.random.randrange(-len(shape) - 1, len(shape) + 1)
    case = test_generate.one_hot(name, places, depth, pair, axis)
    return replace(case, constant=[] if g.chance(0.4) else [1], modes=MODES)


def top_k(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1, 4))
    if x.dtype == np.float32 and g.chance(0.5):
        x = x.round(0)  # with equal elements
    axis = g.axis(x.ndim)
    k = g.random.randint(0, x.shape[axis]) if g.chance(0.7) else min(1, x.shape[axis])
    case = test_generate.best(name, x, k, axis, largest=g.pick(0, 1))
    return g.at_run_time(case, 1)


def nonzero(g: Generator, name: str) -> Case:
    x = g.values(g.shape())
    x = np.where(g.numbers.random(x.shape) < g.pick(0, 0.3, 0.9, 1), x, 0).astype(x.dtype)
    return Case(name, "NonZero", [x], test_nonzero.places, modes=MODES)


def cumulative_sum(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1, 5), "float32", "int32")
    axis = g.axis(x.ndim)

    def expected(v: Array, _: Array) -> Array:
        return np.cumsum(v, axis, v.dtype)

    return Case(
        name,
        "CumSum",
        [x, np.array(axis, np.int32)],
        expected,
        constant=[1],
        tolerance="approximate" if x.dtype == np.float32 else "exact",
        modes=("static", "dynamic", "folded"),
    )


def extreme(g: Generator, name: str) -> Case:
    """ArgMax and ArgMin of integers and floats with equal elements."""
    shape = g.shape(1, 5, zeros=False)
    x = g.values(shape)
    if g.chance(0.7):
        x = (x.round(0) if x.dtype == np.float32 else x // x.dtype.type(64)).astype(x.dtype)
    op = g.pick("ArgMax", "ArgMin")
    case = test_reduce.position(op, name, x, g.axis(x.ndim), keep_dims=g.chance(0.5))
    return replace(case, modes=MODES)


def arange(g: Generator, name: str) -> Case:
    if g.chance(0.4):  # of numbers that float32 has exactly
        start, limit = (g.random.randint(-200, 200) / 4 for _ in range(2))
        delta = g.pick(-1, 1) * g.random.randint(1, 40) / 4
        case = test_generate.arange(name, start, limit, delta, "float32")
    elif g.chance(0.3):
        start, limit = (g.pick(MIN, MIN + 3, -7, 0, 12, MAX - 1, MAX) for _ in range(2))
        delta = g.pick(2**22, 2**30, MAX, -(2**22), -(2**30), MIN)
        case = test_generate.arange(name, start, limit, delta)
    else:
        start, limit = (g.random.randint(-400, 400) for _ in range(2))
        case = test_generate.arange(name, start, limit, g.pick(-1, 1) * g.pick(1, 1, 2, 3, 50, MAX))
    return replace(case, modes=("static", "constant", "folded"))


def filled(g: Generator, name: str) -> Case:
    """ConstantOfShape; "static" gets the shape at run time."""
    value = g.pick(0, 1, -3, MAX, 0.0, 1.5, float("nan"), float("-inf"))
    case = test_generate.full(name, g.shape(1), value)
    return replace(case, modes=("static", "folded"))


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "gather": gather,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
    "one_hot": one_hot,
    "top_k": top_k,
    "nonzero": nonzero,
    "cumulative_sum": cumulative_sum,
    "extreme": extreme,
    "arange": arange,
    "filled": filled,
}
