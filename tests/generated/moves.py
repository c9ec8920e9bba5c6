"""The operators that random graphs grow by: each picks operands that fit and adds itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.generated.generator import Generator
from tests.generated.movement import regrouped
from tests.generated.programs import LARGEST, Program, Unfit
from tests.ops import test_norm
from tests.support.cases import Array

Move = Callable[[Program], "list[int]"]

UNARY: dict[str, Callable[[Array], Any]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Neg": np.negative,
    "Abs": np.abs,
    "Identity": lambda x: x,
}
ROUGH: dict[str, Callable[[Array], Any]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Softplus": lambda x: np.log1p(np.exp(x)),
}
BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
}
COMPARISONS: dict[str, Callable[[Array, Array], Any]] = {
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}


def tame(p: Program, places: Sequence[int]) -> list[int]:
    """The values, clipped where numbers get large."""
    result = []
    for place in places:
        x = p.arrays[place]
        if p.dtype(place) == "float32" and x.size and np.abs(x).max() > LARGEST:
            low, high = p.constant(-8, "float32"), p.constant(8, "float32")
            (place,) = p.op("Clip", [place, low, high], lambda v, a, b: np.clip(v, a, b))
        result.append(place)
    return result


# -- element by element ----------------------------------------------------------------------------


def unary(p: Program) -> list[int]:
    x = p.pick()
    ops = [op for op in UNARY if p.dtype(x) == "float32" or op != "Relu"]
    op = p.g.pick(*ops)
    return p.op(op, [x], UNARY[op])


def rough(p: Program) -> list[int]:
    op = p.g.pick(*ROUGH)
    return p.op(op, [p.pick("float32")], ROUGH[op], rough=True)


def partner(p: Program, x: int) -> int:
    """A value to combine with: another one, or a constant that is broadcast."""
    shape = p.arrays[x].shape

    def fits(y: Array) -> bool:
        pairs = zip(reversed(shape), reversed(y.shape), strict=False)
        return all(1 in pair or len(set(pair)) == 1 for pair in pairs)

    if p.g.chance(0.6):
        return p.pick(p.dtype(x), exact=x not in p.rough and p.g.chance(0.8), fits=fits)
    part = [p.g.pick(1, n) for n in shape[p.g.random.randint(0, len(shape)) :]]
    return p.constant(p.g.numbers.integers(-3, 4, part), p.dtype(x))


def binary(p: Program) -> list[int]:
    x = p.pick()
    operands = [x, partner(p, x)]
    p.g.random.shuffle(operands)
    op = p.g.pick(*BINARY)
    return p.op(op, operands, BINARY[op])


def choice(p: Program) -> list[int]:
    """Where, on a comparison of exact values."""
    a = p.pick(exact=True)
    op = p.g.pick(*COMPARISONS)
    other = p.pick(p.dtype(a), exact=True)
    (mask,) = p.op(op, [a, other], COMPARISONS[op])
    b = p.pick(exact=p.g.chance(0.8))
    operands = [mask, b, partner(p, b)]
    return [mask, *p.op("Where", operands, lambda c, x, y: np.where(c != 0, x, y))]


def cast(p: Program) -> list[int]:
    x = p.pick(exact=True)
    to, kind = ("Int32", np.int32) if p.dtype(x) == "float32" else ("Float", np.float64)
    return p.op("Cast", [x], lambda v: v.astype(kind), to=to)


# -- movement --------------------------------------------------------------------------------------


def transpose(p: Program) -> list[int]:
    x = p.pick(least=2)
    perm = p.g.random.sample(range(p.arrays[x].ndim), p.arrays[x].ndim)
    return p.op("Transpose", [x], lambda v: v.transpose(perm), perm=perm)


def reshape(p: Program) -> list[int]:
    x = p.pick()
    shape = p.arrays[x].shape
    new = [*shape[:1], *regrouped(p.g, shape[1:])] if p.g.chance(0.5) else regrouped(p.g, shape)
    new = new[:5] if math.prod(new[:5]) == math.prod(shape) else [math.prod(shape)]
    written = [0 if i < len(shape) and n == shape[i] and p.g.chance(0.5) else n
               for i, n in enumerate(new)]  # fmt: skip
    if new and 0 not in new and p.g.chance(0.6):
        written[p.g.random.randrange(len(new))] = -1

    def function(v: Array, target: Array) -> Array:
        sizes = [v.shape[i] if n == 0 else int(n) for i, n in enumerate(target)]
        return v.reshape(sizes)

    return p.op("Reshape", [x, p.constant(written)], function, allow_zero=False)


def reshape_like(p: Program) -> list[int]:
    """A reshape to the sizes of the value itself, computed as exporters do."""
    x = p.pick(least=2)
    rank = p.arrays[x].ndim
    axis = p.g.random.randrange(rank)
    (sizes,) = p.op("Shape", [x], lambda v: np.array(v.shape, np.int32))
    (one,) = p.op("Gather", [sizes, p.constant([axis])], lambda s, i: s[i], axis=0)
    rest = p.constant([-1])
    order = [one, rest] if p.g.chance(0.5) else [rest, one]
    (target,) = p.op("Concat", order, lambda *s: np.concatenate(s), axis=0)

    def function(v: Array, t: Array) -> Array:
        if 0 in t:
            raise ValueError("a size of 0 means another thing here")
        return v.reshape([int(n) for n in t])

    return [sizes, *p.op("Reshape", [x, target], function, allow_zero=False)]


def axes_of_one(p: Program) -> list[int]:
    """Unsqueeze, then perhaps Squeeze of other axes."""
    x = p.pick(most=4)
    axis = p.g.random.randint(-p.arrays[x].ndim - 1, p.arrays[x].ndim)
    given = p.constant([axis])
    (y,) = p.op("Unsqueeze", [x, given], lambda v, a: np.expand_dims(v, int(a[0])))
    ones = [i for i, n in enumerate(p.arrays[y].shape) if n == 1]
    if p.g.chance(0.5):
        return [y]
    squeezed = p.constant([p.g.pick(*ones)])
    return p.op("Squeeze", [y, squeezed], lambda v, a: np.squeeze(v, int(a[0])))


def flatten(p: Program) -> list[int]:
    x = p.pick()
    axis = p.g.random.randint(0, p.arrays[x].ndim)

    def function(v: Array) -> Array:
        return v.reshape(math.prod(v.shape[:axis]), math.prod(v.shape[axis:]))

    return p.op("Flatten", [x], function, axis=axis)


def cut(p: Program) -> list[int]:
    x = p.pick(least=1)
    axis = p.g.axis(p.arrays[x].ndim)
    size = p.arrays[x].shape[axis]
    start, end = (p.g.pick(*range(-size, size + 1), 1000, -1000) for _ in range(2))
    step = p.g.pick(1, 1, 1, 2, -1)
    if step > 0 and p.g.chance(0.5):
        start, end = 0, p.g.pick(1, 1000, -1)

    def function(v: Array, s: Array, e: Array, a: Array, t: Array) -> Array:
        index = [slice(None)] * v.ndim
        past_first = t[0] < 0 and e[0] < -v.shape[axis]
        index[axis] = slice(int(s[0]), None if past_first else int(e[0]), int(t[0]))
        return v[tuple(index)]

    operands = [x, *(p.constant([n]) for n in (start, end, axis, step))]
    return p.op("Slice", operands, function)


def split(p: Program) -> list[int]:
    x = p.pick(least=1)
    axis = p.g.axis(p.arrays[x].ndim)
    first = p.g.random.randint(0, p.arrays[x].shape[axis])
    sizes = p.constant([first, p.arrays[x].shape[axis] - first])

    def function(v: Array, n: Array) -> list[Array]:
        if n.sum() != v.shape[axis]:
            raise ValueError("parts")
        return list(np.split(v, [int(n[0])], axis))

    return p.op("Split", [x, sizes], function, outputs=2, axis=axis, num_outputs=None)


def concat(p: Program) -> list[int]:
    x = p.pick(least=1)
    axis = p.g.axis(p.arrays[x].ndim)
    operands = [x]

    def others(y: Array) -> list[int]:
        return [n for i, n in enumerate(y.shape) if i != axis % y.ndim]

    def fits(y: Array) -> bool:
        return y.ndim == p.arrays[x].ndim and others(y) == others(p.arrays[x])

    for _ in range(p.g.random.randint(0, 2)):
        operands.append(x if p.g.chance(0.3) else p.pick(p.dtype(x), fits=fits))
    p.g.random.shuffle(operands)
    return p.op("Concat", operands, lambda *vs: np.concatenate(vs, axis), axis=axis)


def pad(p: Program) -> list[int]:
    x = p.pick("float32", least=1)
    rank = p.arrays[x].ndim
    mode = p.g.pick("Constant", "Constant", "Edge", "Reflect")
    pads = [p.g.pick(0, 0, 1, 2) for _ in range(2 * rank)]

    def function(v: Array, n: Array) -> Array:
        widths = list(zip(n[:rank], n[rank:], strict=True))
        return np.pad(v, widths, mode.lower())  # type: ignore[call-overload,no-any-return]

    return p.op("Pad", [x, p.constant(pads)], function, mode=mode)


def expand(p: Program) -> list[int]:
    x = p.pick(most=4)
    shape = [p.g.pick(n, 1) if n != 1 else p.g.pick(1, 2, 5) for n in p.arrays[x].shape]
    target = p.constant([*p.g.pick([], [2], [3, 1]), *shape])

    def function(v: Array, t: Array) -> Array:
        return np.broadcast_to(v, np.broadcast_shapes(v.shape, tuple(t.tolist())))

    return p.op("Expand", [x, target], function)


def tile(p: Program) -> list[int]:
    x = p.pick(least=1, most=4)
    repeats = p.constant([p.g.pick(1, 1, 2, 3) for _ in p.arrays[x].shape])
    return p.op("Tile", [x, repeats], lambda v, n: np.tile(v, n))


def gather(p: Program) -> list[int]:
    x = p.pick(least=1)
    axis, size = p.g.axis(p.arrays[x].ndim), 0
    size = p.arrays[x].shape[axis]
    if size == 0:
        raise Unfit("Gather")
    count = p.g.pick((), (1,), (3,), (2, 2))
    indices = p.constant(p.g.numbers.integers(-size, size, count))
    return p.op("Gather", [x, indices], lambda v, i: np.take(v, i, axis), axis=axis)


# -- along axes ------------------------------------------------------------------------------------


def mean(x: Array, axis: Sequence[int], keepdims: bool) -> Array:
    """The mean; NaN, without a warning, if there is nothing."""
    count = math.prod(x.shape[a] for a in axis)
    return np.asarray(np.sum(x, axis=tuple(axis), keepdims=keepdims) / np.float64(count))


def reduce(p: Program) -> list[int]:
    x = p.pick("float32", least=1)
    rank = p.arrays[x].ndim
    axes = p.g.some(rank, 1)
    keep = p.g.chance(0.5)
    op, function = p.g.pick(
        ("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMin", np.min), ("ReduceMean", mean)
    )
    return p.op(
        op,
        [x],
        lambda v: function(v, axis=tuple(axes), keepdims=keep),
        rough=op == "ReduceMean",
        axes=axes,
        keep_dims=keep,
    )


def softmax(p: Program) -> list[int]:
    x = p.pick("float32", least=1)
    axis = p.g.axis(p.arrays[x].ndim)
    return p.op("Softmax", [x], lambda v: test_norm.softmax(v, axis), rough=True, axis=axis)


def position(p: Program) -> list[int]:
    x = p.pick(exact=True, least=1)
    axis, keep = p.g.axis(p.arrays[x].ndim), p.g.chance(0.5)
    function = lambda v: np.argmax(v, axis, keepdims=keep)  # noqa: E731  (a step keeps it)
    return p.op("ArgMax", [x], function, axis=axis, keep_dims=keep)


def cumulative_sum(p: Program) -> list[int]:
    x = p.pick(exact=True, least=1)
    axis = p.g.axis(p.arrays[x].ndim)
    return p.op("CumSum", [x, p.constant(axis)], lambda v, _: np.cumsum(v, axis, v.dtype))


def best(p: Program) -> list[int]:
    """TopK; equal elements keep their order."""
    x = p.pick("float32", exact=True, least=1)
    axis = p.g.axis(p.arrays[x].ndim)
    k = p.g.random.randint(0, min(3, p.arrays[x].shape[axis]))

    def function(v: Array, n: Array) -> list[Array]:
        if n[0] > v.shape[axis]:
            raise ValueError("k")
        places = np.argsort(-v, axis, kind="stable").take(range(int(n[0])), axis)
        return [np.take_along_axis(v, places, axis), places.astype(np.int32)]

    return p.op(
        "TopK", [x, p.constant([k])], function, outputs=2, axis=axis, largest=True, sorted=True
    )


def nonzero(p: Program) -> list[int]:
    """The places of what is not zero, and what is found there."""
    x = p.pick("float32", exact=True, least=1, most=3)
    (places,) = p.op("NonZero", [x], lambda v: np.array(np.nonzero(v), np.int32))
    (rows,) = p.op("Transpose", [places], lambda v: v.T, perm=[1, 0])
    return p.op("GatherND", [x, rows], lambda v, i: v[tuple(i.T)], batch_dims=0)


def whole(g: Generator, *shape: int) -> Array:
    """Weights."""
    return g.numbers.integers(-2, 3, shape)


MOVES: tuple[Move, ...] = (
    unary,
    rough,
    binary,
    binary,
    binary,
    choice,
    cast,
    transpose,
    transpose,
    reshape,
    reshape_like,
    axes_of_one,
    flatten,
    cut,
    cut,
    split,
    concat,
    concat,
    pad,
    expand,
    tile,
    gather,
    reduce,
    softmax,
    position,
    cumulative_sum,
    best,
    nonzero,
)
