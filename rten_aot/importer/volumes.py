"""Convolutions and pooling over any number of spatial axes, made of those over two.

All take tensors ``[batch, channels, *spatial]`` with two spatial axes or more.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, tirx

import rten_aot.dialect.arithmetic
import rten_aot.dialect.conv
import rten_aot.dialect.movement
import rten_aot.dialect.pooling  # noqa: F401  (all define what is emitted here)
from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.ops.layout import permute
from rten_aot.importer.ops.slice import cut
from rten_aot.importer.sizes import expr, product
from rten_aot.importer.windows import Windows, simplified


def convolve(
    ctx: OpContext, x: relax.Expr, w: relax.Expr, windows: Windows, groups: int
) -> relax.Expr:
    """A convolution: along a third axis from the end, a sum over the kernel's taps."""
    if len(windows.kernel) == 2:
        return ctx.call(
            "conv",
            x,
            w,
            ctx.shape_expr(windows.pads),
            strides=windows.strides,
            dilations=windows.dilations,
            groups=groups,
        )
    axes = len(windows.kernel)
    batch, channels, size, *others = ctx.shape(x)
    count = _whole_windows(ctx, windows, size)
    layers = _swapped(ctx, _padded(ctx, x, 2, windows.pads[0], windows.pads[axes]))
    terms = []
    for tap in range(windows.kernel[0]):
        part = cut(ctx, layers, [(1, tap * windows.dilations[0], count, windows.strides[0])])
        planes = ctx.reshape(part, [product([batch, count]), channels, *others])
        terms.append(convolve(ctx, planes, _tap(ctx, w, tap), windows.rest, groups))
    total = _sum(ctx, terms)
    _, results, *sizes = ctx.shape(total)
    return _swapped(ctx, ctx.reshape(total, [batch, count, results, *sizes]))


def convolve_transposed(
    ctx: OpContext,
    x: relax.Expr,
    w: relax.Expr,
    windows: Windows,
    extra: list[int],
    groups: int,
) -> relax.Expr:
    """A transposed convolution without dilations; ``extra`` is its output padding.

    Along a third axis from the end, the results of the kernel's taps are spread and shifted.
    """
    if len(windows.kernel) == 2:
        return ctx.call(
            "conv_transpose",
            x,
            w,
            ctx.shape_expr(windows.pads),
            strides=windows.strides,
            dilations=windows.dilations,
            output_padding=extra,
            groups=groups,
        )
    batch, channels, size, *others = ctx.shape(x)
    kernel, stride = windows.kernel[0], windows.strides[0]
    before, after = windows.pads[0], windows.pads[len(windows.kernel)]
    planes = ctx.reshape(_swapped(ctx, x), [product([batch, size]), channels, *others])
    terms = []
    for tap in range(kernel):
        term = convolve_transposed(ctx, planes, _tap(ctx, w, tap), windows.rest, extra[1:], groups)
        _, results, *sizes = ctx.shape(term)
        apart = _padded(ctx, ctx.reshape(term, [batch, size, 1, results, *sizes]), 2, 0, stride - 1)
        spread = ctx.reshape(apart, [batch, size * stride, results, *sizes])
        end = kernel + extra[0] - after - tap - stride
        terms.append(_padded(ctx, spread, 1, tap - before, end))
    return _swapped(ctx, _sum(ctx, terms))


def pool(
    ctx: OpContext, name: str, x: relax.Expr, windows: Windows, sizes: list[Size], **attrs: bool
) -> relax.Expr:
    """``max_pool`` or ``average_pool`` to the spatial ``sizes``.

    The last two axes come first, then each one before them: the extreme or mean of a window is that
    of those of its layers.
    """

    def planes(x: relax.Expr, axes: Sequence[int], sizes: list[Size]) -> relax.Expr:
        """Windows along the given ones of all axes; the second may be missing."""
        whole = Windows([1] * 2, [1] * 2, [1] * 2, [0] * 4)
        for d, axis in enumerate(axes):
            whole.kernel[d] = windows.kernel[axis]
            whole.strides[d] = windows.strides[axis]
            whole.pads[d], whole.pads[d + 2] = (
                windows.pads[axis],
                windows.pads[axis + len(windows.kernel)],
            )
        return ctx.call(
            name,
            x,
            ctx.shape_expr(whole.pads),
            ctx.shape_expr(sizes),
            kernel=whole.kernel,
            strides=whole.strides,
            dilations=whole.dilations,
            **attrs,
        )

    rank = len(windows.kernel)
    batch, channels, *own = ctx.shape(x)
    if rank == 2:
        return planes(x, (0, 1), sizes)
    flat = ctx.reshape(x, [batch, product([channels, *own[:-2]]), *own[-2:]])
    result = planes(flat, (rank - 2, rank - 1), sizes[-2:])
    inner = product(sizes[-2:])
    for axis in reversed(range(rank - 2)):
        flat = ctx.reshape(result, [batch, product([channels, *own[:axis]]), own[axis], inner])
        result = planes(flat, (axis,), [sizes[axis], inner])
        inner = product([sizes[axis], inner])
    return ctx.reshape(result, [batch, channels, *sizes])


def _whole_windows(ctx: OpContext, windows: Windows, size: Size) -> Size:
    room, stride = windows.room(0, size), windows.strides[0]
    steps = room // stride if isinstance(room, int) else tirx.floordiv(room, expr(stride))
    return simplified(ctx, steps + 1)


def _padded(ctx: OpContext, x: relax.Expr, axis: int, before: Size, after: Size) -> relax.Expr:
    """``x`` with zeros before and behind an axis; negative numbers take elements away."""
    if before == 0 and after == 0:
        return x
    sizes = [ctx.shape_expr([n]) for n in (before, after)]
    return ctx.call("pad", x, *sizes, axes=[axis], mode="constant", constant=0)


def _swapped(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    return permute(ctx, x, [0, 2, 1, *range(3, ctx.rank(x))])


def _tap(ctx: OpContext, w: relax.Expr, tap: int) -> relax.Expr:
    """The kernel at one place along its first axis."""
    first, second, _, *rest = ctx.shape(w)
    return ctx.reshape(cut(ctx, w, [(2, tap, 1, 1)]), [first, second, *rest])


def _sum(ctx: OpContext, terms: Sequence[relax.Expr]) -> relax.Expr:
    total = terms[0]
    for term in terms[1:]:
        total = ctx.call("add", total, term)
    return total
