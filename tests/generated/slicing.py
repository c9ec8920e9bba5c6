"""Slice, Split, Concat and Pad."""

from __future__ import annotations

from collections.abc import Callable

from tests.generated.generator import Generator
from tests.ops import test_slice
from tests.support.cases import Case

MIN, MAX = -(2**31), 2**31 - 1


def cut(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1))
    axes = list(range(g.random.randint(0, x.ndim))) if g.chance(0.3) else g.some(x.ndim)

    def position(size: int) -> int:
        return int(g.pick(*range(-size - 2, size + 3), MIN, MAX, MIN + 1, 100, -100))

    starts = [position(x.shape[a]) for a in axes]
    ends = [position(x.shape[a]) for a in axes]
    steps = [g.pick(1, 1, 1, 2, 3, 7, MAX, -1, -1, -2, -5, MIN, MIN + 1) for _ in axes]
    implied = axes == list(range(len(axes))) and g.chance(0.5)
    case = test_slice.cut(
        name,
        x,
        starts,
        ends,
        None if implied else [g.pick(a, a - x.ndim) for a in axes],
        None if all(s == 1 for s in steps) and g.chance(0.5) else steps,
    )
    vectors = [i for i, operand in enumerate(case.inputs) if i and operand is not None]
    return g.at_run_time(case, *g.pick(vectors, vectors[:2]))


def split(g: Generator, name: str) -> Case:
    x = g.values(g.shape(1))
    axis = g.axis(x.ndim)
    whole = x.shape[axis]
    if g.chance(0.5):
        cuts = sorted(g.random.randint(0, whole) for _ in range(g.random.randrange(5)))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, whole], strict=True)]
        case = test_slice.split(name, x, axis, len(sizes), sizes)
        return g.at_run_time(case, 1)
    outputs = g.random.randint(1, 5)
    if whole % outputs == 0 and g.chance(0.5):
        return test_slice.split(name, x, axis, outputs)
    if -(-whole // outputs) * (outputs - 1) > whole:
        outputs = 1
    return test_slice.split(name, x, axis, outputs, num_outputs=outputs)


def concat(g: Generator, name: str) -> Case:
    first = g.values(g.shape(1))
    axis = g.axis(first.ndim)
    operands = [first]
    for _ in range(g.random.randrange(5)):
        shape = list(first.shape)
        shape[axis] = g.pick(0, 1, 2, 3, 8, 17)
        operands.append(g.values(shape, first.dtype.name))
    return test_slice.concat(name, axis, *operands)


def pad(g: Generator, name: str) -> Case:
    mode = g.pick("constant", "constant", "reflect", "edge", "wrap")
    x = g.values(g.shape())
    axes = None if g.chance(0.6) else [g.pick(a, a - x.ndim) for a in g.some(x.ndim)]
    before, after = [], []
    for axis in range(x.ndim) if axes is None else axes:
        size = x.shape[axis]
        least = 0 if mode == "constant" else 1  # of what is left to take elements from
        cropped = g.random.randint(0, max(size - least, 0)) if g.chance(0.3) else 0
        first = g.random.randint(0, cropped)
        most = 0 if size == 0 and least else g.pick(2, 2, 9)
        before.append(-first or g.random.randint(0, most))
        after.append(first - cropped or g.random.randint(0, most))
    filled = mode == "constant" and g.chance(0.7)
    value = g.values([], x.dtype.name)[()] if filled else None
    case = test_slice.pad(name, x, [*before, *after], mode, value, axes)
    return g.at_run_time(case, 1)


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "slice": cut,
    "split": split,
    "concat": concat,
    "pad": pad,
}
