"""GridSample against a plain reading of the specification."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.support.cases import Array, Case, Mode, Suite

RNG = np.random.default_rng(3)


def reference(x: Array, grid: Array, *, align: bool) -> Array:
    height, width = x.shape[2:]

    def place(point: Array, size: int) -> Array:
        return (point + 1) / 2 * (size - 1) if align else ((point + 1) * size - 1) / 2

    across = np.clip(place(grid[..., 0].astype(np.float64), width), -2, width + 1)
    down = np.clip(place(grid[..., 1].astype(np.float64), height), -2, height + 1)
    left, top = np.floor(across).astype(int), np.floor(down).astype(int)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (2, 3), (2, 3)))
    batch = np.arange(x.shape[0])[:, None, None]
    result = np.zeros((x.shape[0], *grid.shape[1:3], x.shape[1]))
    for dy in (0, 1):
        for dx in (0, 1):
            weight = abs(1 - dy - (down - top)) * abs(1 - dx - (across - left))
            values = padded[batch, :, top + dy + 2, left + dx + 2]
            result += values * weight[..., None]
    return result.transpose(0, 3, 1, 2)


def case(name: str, x: Array, grid: Array, *, align: bool) -> Case:
    expected = functools.partial(reference, align=align)
    attrs = {"align_corners": int(align)}
    return Case(
        name, "GridSample", [x, grid], expected, attrs, tolerance="approximate", fixed=[(1, 3)]
    )


X = RNG.standard_normal((2, 3, 4, 7)).astype(np.float32)
GRID = RNG.uniform(-1.3, 1.3, (2, 6, 5, 2)).astype(np.float32)
FAR = GRID.copy()
FAR[0, 0] = [[np.inf, 0], [1e30, -1e30], [-1, -1], [1, 1], [0, -np.inf]]
SUITE = Suite(
    [
        case(f"{name}-{align}", x, grid, align=align)
        for align in (False, True)
        for name, x, grid in (
            ("plain", X, GRID),
            ("far", X, FAR),
            ("pixel", X[:, :, :1, :1], GRID),
            ("none", X[:0], GRID[:0]),
        )
    ]
)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_grid_sample(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)
