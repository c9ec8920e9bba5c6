"""Einsum with random equations, and GridSample."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tests.generated.generator import Generator
from tests.ops import test_grid_sample
from tests.support.cases import MODES, Case

LETTERS = "aAbBcijkKz"
MOST_TERMS = 20_000


def einsum(g: Generator, name: str) -> Case:
    """Sums of products; labels may be repeated, and have size 1 in some operands."""
    while True:
        labels = g.random.sample(LETTERS, g.random.randint(1, 6))
        sizes = {n: g.pick(1, 2, 3, 4, 5, 8, 17) for n in labels}
        if g.chance(0.05):
            sizes[labels[0]] = 0
        hidden = [g.pick(1, 2, 3) for _ in range(g.pick(0, 0, 0, 1, 2))]
        if math.prod([*sizes.values(), *hidden]) <= MOST_TERMS:
            break
    terms, shapes = [], []
    for _ in range(g.pick(1, 1, 2, 2, 2, 3, 4)):
        own = [g.pick(*labels) for _ in range(g.random.randint(0, 4))]
        shape = [1 if g.chance(0.1) and own.count(n) == 1 else sizes[n] for n in own]
        text = "".join(own)
        if hidden and g.chance(0.7):
            place = g.random.randint(0, len(own))
            some = [g.pick(n, n, 1) for n in hidden[g.random.randint(0, len(hidden)) :]]
            text, shape = f"{text[:place]}...{text[place:]}", shape[:place] + some + shape[place:]
        terms.append(text)
        shapes.append(shape)
    equation = g.pick(",", " , ").join(terms)
    if g.chance(0.75):
        equation += g.pick("->", " -> ") + _result(g, terms)
    dtype = g.pick("float32", "float32", "int32")
    xs = [np.asarray(g.numbers.integers(-9, 10, shape)).astype(dtype) for shape in shapes]
    if dtype == "float32":
        xs = [np.asarray(x / np.float32(8)) for x in xs]
    return Case(
        name,
        "Einsum",
        xs,
        lambda *given: np.asarray(np.einsum(equation.replace(" ", ""), *given)),
        {"equation": equation},
        tolerance="approximate" if dtype == "float32" else "exact",
        modes=MODES,
    )


def _result(g: Generator, terms: Sequence[str]) -> str:
    """Some of the labels in any order; what an ellipsis stands for is always kept."""
    counts = Counter("".join(terms).replace("...", ""))
    kept = [n for n in counts if g.chance(0.5)]
    g.random.shuffle(kept)
    if any("..." in t for t in terms):
        kept.insert(g.random.randint(0, len(kept)), "...")
    return "".join(kept)


def grid_sample(g: Generator, name: str) -> Case:
    batch, channels = g.pick(1, 1, 2), g.pick(1, 2, 3, 5, 16)
    picture = [g.pick(1, 1, 2, 3, 5, 9, 17) for _ in range(2)]
    points = [g.pick(1, 2, 3, 8, 17, 33) for _ in range(2)]
    grid = g.numbers.uniform(-1.4, 1.4, (batch, *points, 2)).astype("float32")
    special = np.float32([-1, 0, 1, 3e38, -3e38, 1e30, -1e9, 1 / 3])
    grid = np.where(g.numbers.random(grid.shape) < 0.1, g.numbers.choice(special, grid.shape), grid)
    x = g.array(batch, channels, *picture)
    return replace(test_grid_sample.case(name, x, grid, align=g.chance(0.5)), modes=MODES)


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "einsum": einsum,
    "grid_sample": grid_sample,
}
