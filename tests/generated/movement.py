"""Operators that arrange elements anew: shapes, orders, copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.generated.generator import Generator
from tests.ops import test_generate, test_layout
from tests.support.cases import Case, Mode

MODES: tuple[Mode, ...] = ("static", "dynamic", "folded")


def transpose(g: Generator, name: str) -> Case:
    x = g.values(g.shape())
    perm = g.random.sample(range(x.ndim), x.ndim)
    return test_layout.transpose(name, x, None if not perm or g.chance(0.1) else perm)


def regrouped(g: Generator, shape: Sequence[int]) -> list[int]:
    """Another shape of as many elements."""
    count = math.prod(shape)
    if count == 0:
        result = g.shape(1)
        result[g.random.randrange(len(result))] = 0
        return result
    result = [1] * g.random.randint(0 if count == 1 else 1, 6)
    factor = 2
    while count > 1:
        while count % factor:
            factor += 1
        result[g.random.randrange(len(result))] *= factor
        count //= factor
    return result


def reshape(g: Generator, name: str) -> Case:
    x = g.values(g.shape())
    new = [*x.shape[:1], *regrouped(g, x.shape[1:])] if g.chance(0.3) else regrouped(g, x.shape)
    written = list(new)
    copied = [i for i, n in enumerate(new) if i < x.ndim and n == x.shape[i]]
    allow_zero = any(n == 0 and i not in copied for i, n in enumerate(new)) or g.chance(0.1)
    if not allow_zero:
        for i in copied:
            written[i] = 0 if new[i] == 0 or g.chance(0.4) else new[i]
    candidates = [i for i in range(len(new)) if math.prod(new[:i] + new[i + 1 :]) > 0]
    if candidates and not (allow_zero and 0 in new) and g.chance(0.5):
        written[g.pick(*candidates)] = -1
    case = test_layout.reshape(name, x, written, new, allowzero=int(allow_zero))
    return g.at_run_time(case, 1)


def flatten(g: Generator, name: str) -> Case:
    x = g.values(g.shape())
    axis = g.random.randint(-x.ndim, x.ndim)
    first = axis if axis >= 0 else axis + x.ndim
    want = (math.prod(x.shape[:first]), math.prod(x.shape[first:]))
    return Case(name, "Flatten", [x], lambda x: x.reshape(want), {"axis": axis}, modes=MODES)


def squeeze(g: Generator, name: str) -> Case:
    """Squeeze or Unsqueeze."""
    shape = g.shape()
    x = g.values(shape)
    if g.chance(0.5):
        rank = g.random.randint(len(shape), max(6, len(shape)))
        added = g.random.sample(range(rank), rank - len(shape))
        axes = [g.pick(a, a - rank) for a in added]
        for a in sorted(added):
            shape.insert(a, 1)
        return g.at_run_time(test_layout.squeeze("Unsqueeze", name, x, axes, shape), 1)
    ones = [i for i, n in enumerate(shape) if n == 1]
    if g.chance(0.3):
        want = [n for n in shape if n != 1]
        return test_layout.squeeze("Squeeze", name, x, None, want)
    removed = g.random.sample(ones, g.random.randint(0, len(ones)))
    axes = [g.pick(a, a - len(shape)) for a in removed]
    want = [n for i, n in enumerate(shape) if i not in removed]
    return g.at_run_time(test_layout.squeeze("Squeeze", name, x, axes, want), 1)


def expand(g: Generator, name: str) -> Case:
    x = g.values(g.shape())
    wanted = [g.pick(1, n) if n != 1 else g.pick(0, 1, 1, 2, 3, 7) for n in x.shape]
    if g.chance(0.4):
        wanted = [g.pick(0, 1, 2, 4) for _ in range(g.random.randint(0, 6 - x.ndim))] + wanted
    elif g.chance(0.3):
        wanted = wanted[g.random.randint(0, len(wanted)) :]
    want = np.broadcast_shapes(x.shape, tuple(wanted))
    return g.at_run_time(test_layout.expand(name, x, wanted, want), 1)


def tile(g: Generator, name: str) -> Case:
    x = g.values(g.shape())
    repeats = [g.pick(0, 1, 1, 1, 2, 2, 3, 5) if x.ndim < 5 else g.pick(1, 1, 2) for _ in x.shape]
    return g.at_run_time(test_layout.tile(name, x, repeats), 1)


def depth_to_space(g: Generator, name: str) -> Case:
    block = g.pick(1, 2, 2, 3, 4)
    x = g.values([g.pick(0, 1, 2), block**2 * g.pick(1, 2, 3), g.pick(1, 2, 5), g.pick(1, 3, 8)])
    return test_layout.depth_to_space(g.pick("DCR", "CRD"), x, block, name)


def triangle(g: Generator, name: str) -> Case:
    """Trilu or EyeLike."""
    k = g.pick(0, 0, 1, -1, 2, -3, 100, -100, 2**31 - 1, -(2**31))
    if g.chance(0.3):
        kind = g.pick(None, 1, 6, 3)
        rows, columns = g.pick(0, 1, 2, 5, 33), g.pick(1, 3, 17)
        return test_generate.eye(name, (rows, columns), k, kind)
    x, upper = g.values(g.shape(2)), g.pick(0, 1)
    run_time = g.chance(0.4)
    return test_generate.trilu(name, x, None if g.chance(0.2) else k, upper, run_time=run_time)


def shape(g: Generator, name: str) -> Case:
    """Shape or Size."""
    x = g.values(g.shape())
    if g.chance(0.2):
        return Case(name, "Size", [x], [np.array(x.size, np.int32)], modes=MODES)
    start, end = (g.pick(None, *range(-8, 9), 1000, -1000) for _ in range(2))
    return test_layout.shape(name, x, start, end)


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "transpose": transpose,
    "reshape": reshape,
    "flatten": flatten,
    "squeeze": squeeze,
    "expand": expand,
    "tile": tile,
    "depth_to_space": depth_to_space,
    "triangle": triangle,
    "shape": shape,
}
