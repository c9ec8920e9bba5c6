"""Operators of random graphs whose sizes the graph itself computes, from shapes or from inputs."""

from __future__ import annotations

import numpy as np

from tests.generated.moves import Move
from tests.generated.programs import Program, Unfit
from tests.support.cases import Array

FAR = 2**31 - 1


def _truncated(a: Array, b: Array) -> Array:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


ARITHMETIC = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _truncated,
    "Mod": np.mod,
    "Max": np.maximum,
    "Min": np.minimum,
}


def amount(p: Program, x: int, axis: int) -> int:
    """A vector of one number: a size or an input, with some arithmetic."""
    if p.count is not None and p.g.chance(0.3):
        (n,) = p.op("Unsqueeze", [p.count(), p.constant([0])], lambda v, _: v.reshape(1))
    else:
        (sizes,) = p.op("Shape", [x], lambda v: np.array(v.shape, np.int32))
        place = p.constant([p.g.pick(axis, axis - p.arrays[x].ndim)])
        (n,) = p.op("Gather", [sizes, place], lambda s, i: s[i], axis=0)
    for _ in range(p.g.pick(0, 0, 1, 1, 2)):
        op = p.g.pick(*ARITHMETIC)
        attrs = {"fmod": False} if op == "Mod" else {}
        operands = [n, p.constant([p.g.pick(1, 2, 2, 3, -1, -2)])]
        if op not in ("Div", "Mod") and p.g.chance(0.3):
            operands.reverse()
        (n,) = p.op(op, operands, ARITHMETIC[op], **attrs)
    return n


def size(n: Array) -> int:
    """The number in a vector of one, which must be a size."""
    if n[0] < 0:
        raise ValueError("no size")
    return int(n[0])


def cut(p: Program, x: int, axis: int, n: int) -> list[int]:
    """Slice from or to the number."""
    axes, other = p.constant([axis]), p.constant([p.g.pick(0, 1, -1, FAR)])

    def function(v: Array, start: Array, end: Array, _: Array) -> Array:
        return v[(*[slice(None)] * axis, slice(int(start[0]), int(end[0])))]

    ends = [n, other] if p.g.chance(0.5) else [other, n]
    return p.op("Slice", [x, *ends, axes], function)


def part(p: Program, x: int, axis: int, n: int) -> list[int]:
    """Split into that many and the rest."""
    (sizes,) = p.op("Shape", [x], lambda v: np.array([v.shape[axis]]), start=axis, end=axis + 1)
    (rest,) = p.op("Sub", [sizes, n], np.subtract)
    (both,) = p.op("Concat", [n, rest], lambda a, b: np.concatenate([a, b]), axis=0)

    def function(v: Array, s: Array) -> list[Array]:
        if min(s) < 0:
            raise ValueError("no size")
        return list(np.split(v, [int(s[0])], axis))

    return p.op("Split", [x, both], function, outputs=2, axis=axis, num_outputs=None)


def count_up(p: Program, x: int, axis: int, n: int) -> list[int]:
    """Range to the number."""
    del x, axis
    (limit,) = p.op("Squeeze", [n, p.constant([0])], lambda v, _: v.reshape(()))
    start, delta = p.constant(p.g.pick(0, 1, -2)), p.constant(p.g.pick(1, 2))
    return p.op("Range", [start, limit, delta], lambda a, b, d: np.arange(a, b, d, dtype=np.int32))


def fill(p: Program, x: int, axis: int, n: int) -> list[int]:
    """ConstantOfShape."""
    del x, axis
    shape = [n, p.constant([p.g.pick(1, 3)])]
    p.g.random.shuffle(shape)
    (target,) = p.op("Concat", shape, lambda a, b: np.concatenate([a, b]), axis=0)
    value = p.g.pick(0.0, 2.0)
    return p.op("ConstantOfShape", [target], lambda s: np.full(s, value), value=value)


def repeat(p: Program, x: int, axis: int, n: int) -> list[int]:
    """Tile along an axis, or Expand by a new one."""
    rank = p.arrays[x].ndim
    before, behind = p.constant([1] * axis), p.constant([1] * (rank - axis - 1))
    if p.g.chance(0.5):
        (target,) = p.op("Concat", [n, p.constant([1] * rank)],
                         lambda *s: np.concatenate(s), axis=0)  # fmt: skip
        return p.op("Expand", [x, target], lambda v, s: np.broadcast_to(v, (size(s), *v.shape)))
    (target,) = p.op("Concat", [before, n, behind], lambda *s: np.concatenate(s), axis=0)

    def function(v: Array, s: Array) -> Array:
        return np.tile(v, (*s[:axis], size(s[axis:]), *s[axis + 1 :]))

    return p.op("Tile", [x, target], function)


def pad(p: Program, x: int, axis: int, n: int) -> list[int]:
    """That many more elements in front of an axis."""
    rank = p.arrays[x].ndim
    if p.dtype(x) != "float32":
        raise Unfit("Pad")
    parts = [p.constant([0] * axis), n, p.constant([0] * (2 * rank - axis - 1))]
    (pads,) = p.op("Concat", parts, lambda *s: np.concatenate(s), axis=0)

    def function(v: Array, s: Array) -> Array:
        return np.pad(v, list(zip(s[:rank], s[rank:], strict=True)))

    return p.op("Pad", [x, pads], function, mode="Constant")


def regroup(p: Program, x: int, axis: int, n: int) -> list[int]:
    """Reshape to rows of that length."""
    del axis
    (target,) = p.op("Concat", [p.constant([-1]), n], lambda *s: np.concatenate(s), axis=0)

    def function(v: Array, s: Array) -> Array:
        if s[1] <= 0 or v.size == 0:
            raise ValueError("0 has a meaning of its own")
        return v.reshape(s)

    return p.op("Reshape", [x, target], function, allow_zero=False)


def sized(p: Program) -> list[int]:
    """One of them, along some axis of some value."""
    x = p.pick(least=1, most=5)
    axis = p.g.random.randrange(p.arrays[x].ndim)
    move = p.g.pick(cut, cut, part, count_up, fill, repeat, pad, regroup)
    n = amount(p, x, axis)
    return [n, *move(p, x, axis, n)]


SIZED: tuple[Move, ...] = (sized,) * 5
