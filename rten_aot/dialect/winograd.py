"""Convolution by Winograd's minimal filtering, F(2x2, 3x3): 16 products where 36 are the rule.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). Tiles of 4x4
pixels overlap by two; each gives 2x2 pixels of the result. Sums are made of the same numbers in
another order, so results differ from those of the plain sum by a few roundings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

from rten_aot.dialect.broadcast import index
from rten_aot.dialect.conv import result_size
from rten_aot.dialect.registry import UNANNOTATED, Annotations, Pattern, define
from rten_aot.dialect.storage import stored

TILE = 2
"""Height and width of the piece of the result that one tile gives."""
TAPS = 4
"""Height and width of a tile."""
_DATA = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_WEIGHT = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
_RESULT = ((1, 1, 1, 0), (0, 1, -1, -1))


def transform_weight(w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """OIHW weights of 3x3 as ``[16, out, in]``: what the tiles are multiplied with."""
    g = np.array(_WEIGHT)
    taps = np.einsum("xh,oihw,yw->xyoi", g, w.astype(np.float64), g)
    transformed: npt.NDArray[np.float32] = taps.reshape(TAPS * TAPS, *w.shape[:2]).astype("float32")
    return transformed


@define("conv_winograd", pattern=Pattern.ANCHOR)
def conv_winograd(
    x: te.Tensor,
    w: te.Tensor,
    pads: Sequence[tirx.Expr],
    *,
    out_channels: int,
    annotations: Annotations = UNANNOTATED,
) -> te.Tensor:
    """2-D convolution of NHWC ``x`` with a kernel of 3x3, without strides or dilations.

    ``w`` is what ``transform_weight`` gives, packed as ``[16, blocks, in, lanes]``: output channel
    ``o`` is lane ``o % lanes`` of block ``o // lanes``. It may be float16.
    """
    batch, height, width, channels = x.shape
    lanes = w.shape[3]
    sizes = [result_size(x.shape[1 + d], index(3), 1, 1, pads[d] + pads[d + 2]) for d in (0, 1)]
    tiles = [tirx.floordiv(size + index(TILE - 1), index(TILE)) for size in sizes]

    def pixel(n: tirx.Expr, h: tirx.Expr, v: tirx.Expr, c: tirx.Expr) -> tirx.Expr:
        row, column = h - pads[0], v - pads[1]
        inside = tirx.all(row >= index(0), row < height, column >= index(0), column < width)
        return tirx.if_then_else(inside, x(n, row, column, c), tirx.const(0, "float32"))

    def data(tap: tirx.Expr, n: tirx.Expr, th: tirx.Expr, tw: tirx.Expr, c: tirx.Expr) -> tirx.Expr:
        place = [[pixel(n, th * TILE + i, tw * TILE + j, c) for j in range(4)] for i in range(4)]
        rows = [
            [_combine(_DATA[a], [place[i][j] for i in range(4)]) for j in range(4)]
            for a in range(4)
        ]
        return _choose(tap, [_combine(_DATA[b], rows[a]) for a in range(4) for b in range(4)])

    transformed = te.compute(
        (index(TAPS * TAPS), batch, *tiles, channels),
        data,
        name="tiles",
        attrs={"rten.part": 1},
    )
    rc = te.reduce_axis((index(0), channels), name="rc")
    products = te.compute(
        (index(TAPS * TAPS), batch, *tiles, index(out_channels)),
        lambda tap, n, th, tw, o: te.sum(
            transformed(tap, n, th, tw, rc)
            * stored(w(tap, tirx.floordiv(o, lanes), rc, tirx.floormod(o, lanes))),
            axis=rc,
        ),
        name="products",
        attrs={"rten.anchor": "winograd", **annotations},
    )

    def result(n: tirx.Expr, h: tirx.Expr, v: tirx.Expr, o: tirx.Expr) -> tirx.Expr:
        th, tw = tirx.floordiv(h, index(TILE)), tirx.floordiv(v, index(TILE))
        columns = [[products(index(a * 4 + b), n, th, tw, o) for a in range(4)] for b in range(4)]
        rows = [[_combine(_RESULT[p], column) for column in columns] for p in range(TILE)]
        pieces = [_combine(_RESULT[q], rows[p]) for p in range(TILE) for q in range(TILE)]
        place = tirx.floormod(h, index(TILE)) * TILE + tirx.floormod(v, index(TILE))
        return _choose(place, pieces)

    return te.compute((batch, *sizes, index(out_channels)), result, name="conv")


def _combine(factors: Sequence[int], terms: Sequence[tirx.Expr]) -> tirx.Expr:
    """The sum of the terms with factors of 1, 0 and -1; a positive one comes first."""
    total: tirx.Expr | None = None
    for factor, term in sorted(zip(factors, terms, strict=True), key=lambda pair: -pair[0]):
        if factor == 1:
            total = term if total is None else total + term
        elif factor == -1:
            total = total - term
    return total


def _choose(number: tirx.Expr, values: Sequence[tirx.Expr]) -> tirx.Expr:
    """``values[number]``."""
    result = values[-1]
    for i in reversed(range(len(values) - 1)):
        result = tirx.Select(tirx.EQ(number, index(i)), values[i], result)
    return result
