"""Sampling of pictures at given points (ONNX GridSample)."""

from __future__ import annotations

from tvm import te, tirx
from tvm.tirx import Expr

from rten_aot.dialect.loops import int64
from rten_aot.dialect.registry import Pattern, define


def _f32(value: float) -> Expr:
    return tirx.const(value, "float32")


@define("grid_sample", pattern=Pattern.INJECTIVE)
def grid_sample(x: te.Tensor, grid: te.Tensor, *, align_corners: bool) -> te.Tensor:
    """``x`` [N, C, H, W] at the points ``grid`` [N, H', W', 2], interpolated; zeros around ``x``.

    Points are pairs of abscissa and ordinate, from -1 to 1: the centres of the outermost pixels if
    ``align_corners``, else their outer edges.
    """
    batch, channels, height, width = x.shape

    def position(point: Expr, size: Expr) -> Expr:
        count = tirx.Cast("float32", size)
        if align_corners:
            place = (point + _f32(1.0)) * _f32(0.5) * (count - _f32(1.0))
        else:
            place = ((point + _f32(1.0)) * count - _f32(1.0)) * _f32(0.5)
        # What lies further out is as far out as this, and an integer can hold this.
        near = tirx.Select(place > _f32(-2.0), place, _f32(-2.0))
        return tirx.Select(near < count + _f32(1.0), near, count + _f32(1.0))

    def element(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        across = position(grid(n, i, j, int64(0)), width)
        down = position(grid(n, i, j, int64(1)), height)
        left, top = tirx.floor(across), tirx.floor(down)

        def at(dy: int, dx: int) -> Expr:
            row = tirx.Cast("int64", top) + int64(dy)
            column = tirx.Cast("int64", left) + int64(dx)
            inside = tirx.all(row >= int64(0), row < height, column >= int64(0), column < width)
            return tirx.if_then_else(inside, x(n, c, row, column), _f32(0.0))

        right_part, lower_part = across - left, down - top
        upper = at(0, 0) * (_f32(1.0) - right_part) + at(0, 1) * right_part
        lower = at(1, 0) * (_f32(1.0) - right_part) + at(1, 1) * right_part
        return upper * (_f32(1.0) - lower_part) + lower * lower_part

    shape = (batch, channels, grid.shape[1], grid.shape[2])
    return te.compute(shape, element, name="grid_sample")
