"""Pooling over the last two axes (ONNX MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.sym import Analyzer

from rten_aot.dialect.broadcast import index, static
from rten_aot.dialect.conv import reduction
from rten_aot.dialect.reduce import element_count, least, over_count, reduce_axes, reducer
from rten_aot.dialect.registry import Layout, Pattern, define

Sizes = Sequence[tirx.Expr]


@dataclass(frozen=True)
class _Window:
    """The positions of a window along one axis."""

    size: tirx.Expr
    """Length of the axis."""
    before: tirx.Expr
    after: tirx.Expr
    kernel: int
    stride: int
    dilation: int

    def position(self, at: tirx.Expr, tap: tirx.Expr) -> tirx.Expr:
        return at * index(self.stride) + tap * index(self.dilation) - self.before

    def count(self, at: tirx.Expr, *, with_pads: bool) -> tirx.Expr:
        """How many taps lie on the axis, or on the axis with its pads."""
        start = at * index(self.stride) - self.before
        low = -self.before if with_pads else index(0)
        high = self.size + self.after if with_pads else self.size
        return self._taps_below(high - start) - self._taps_below(low - start)

    def _taps_below(self, distance: tirx.Expr) -> tirx.Expr:
        taps = tirx.floordiv(distance + index(self.dilation - 1), index(self.dilation))
        return tirx.max(index(0), tirx.min(index(self.kernel), taps))


def _pool(
    x: te.Tensor,
    windows: tuple[_Window, _Window],
    sizes: Sizes,
    layout: str,
    combine: Callable[..., tirx.Expr],
    outside: tirx.Expr,
) -> te.Tensor:
    taps = reduction([index(w.kernel) for w in windows], "yx")

    def element(*i: tirx.Var) -> tirx.Expr:
        where = list(i)
        inside = []
        for axis, window, tap in zip(spatial_axes(layout), windows, taps, strict=True):
            where[axis] = window.position(i[axis], tap)
            inside += [where[axis] >= index(0), where[axis] < window.size]
        value = tirx.if_then_else(tirx.all(*inside), x(*where), outside)
        return combine(value, axis=taps)

    shape = list(x.shape)
    for axis, size in zip(spatial_axes(layout), sizes, strict=True):
        shape[axis] = size
    return te.compute(tuple(shape), element, name="pool")


def spatial_axes(layout: str) -> tuple[int, int]:
    """Where height and width lie."""
    return (2, 3) if layout == "NCHW" else (1, 2)


def _windows(
    x: te.Tensor,
    pads: Sizes,
    layout: str,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[_Window, _Window]:
    first, second = (
        _Window(x.shape[axis], pads[d], pads[d + 2], kernel[d], strides[d], dilations[d])
        for d, axis in enumerate(spatial_axes(layout))
    )
    return first, second


@define("max_pool", layout=Layout.SPATIAL, pattern=Pattern.ANCHOR)
def max_pool(
    x: te.Tensor,
    pads: Sizes,
    sizes: Sizes,
    *,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    layout: str = "NCHW",
) -> te.Tensor:
    """The greatest element of every window; NaN if one is NaN. Padding never counts.

    ``pads`` are ``[top, left, bottom, right]``, ``sizes`` height and width of the result, which the
    caller computes because rounding them up (``ceil_mode``) has rules of its own.
    """
    windows = _windows(x, pads, layout, kernel, strides, dilations)
    return _pool(x, windows, sizes, layout, reducer("max"), least(str(x.dtype)))


@define("average_pool", layout=Layout.SPATIAL, pattern=Pattern.ANCHOR)
def average_pool(
    x: te.Tensor,
    pads: Sizes,
    sizes: Sizes,
    *,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    count_include_pad: bool,
    layout: str = "NCHW",
) -> te.Tensor:
    """The mean of every window; operands as for ``max_pool``.

    The divisor counts the elements on the input or, with ``count_include_pad``, on the input and
    its padding; what a rounded-up result reads beyond the padding never counts.
    """
    windows = _windows(x, pads, layout, kernel, strides, dilations)
    total = _pool(x, windows, sizes, layout, te.sum, tirx.const(0, str(x.dtype)))

    def mean(*i: tirx.Var) -> tirx.Expr:
        analyzer, count = Analyzer(), index(1)
        for axis, window in zip(spatial_axes(layout), windows, strict=True):
            if static(total.shape[axis]) == 1:
                analyzer.bind(i[axis], index(0))
            count = count * window.count(i[axis], with_pads=count_include_pad)
        return over_count(total(*i), analyzer.simplify(count))

    return te.compute(tuple(total.shape), mean, name="average_pool")


@define("global_max_pool", layout=Layout.SPATIAL)
def global_max_pool(x: te.Tensor, *, layout: str = "NCHW") -> te.Tensor:
    """The greatest element of every channel; NaN if one is NaN."""
    return reduce_axes(x, _all_spatial(x, layout), "max", "global_max_pool")


@define("global_average_pool", layout=Layout.SPATIAL)
def global_average_pool(x: te.Tensor, *, layout: str = "NCHW") -> te.Tensor:
    """The mean of every channel; NaN where a channel has no elements."""
    axes = _all_spatial(x, layout)
    total = reduce_axes(x, axes, "sum", "total")
    count = element_count(x, axes)
    return te.compute(
        tuple(total.shape), lambda *i: over_count(total(*i), count), name="global_average_pool"
    )


def _all_spatial(x: te.Tensor, layout: str) -> list[int]:
    """All axes but batch and channels, for any rank."""
    rank = len(x.shape)
    return list(range(2, rank)) if layout == "NCHW" else list(range(1, rank - 1))
