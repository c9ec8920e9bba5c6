"""Strides, dilations and padding of windows that slide over spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax, tirx

from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.sizes import at_least, ceil_div, expr, maximum


@dataclass(frozen=True)
class Windows:
    """What slides over two spatial axes or more; a single one is the width, below a height of 1."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[Size]
    """Those before each axis, then those behind: top, left, bottom, right."""

    @property
    def rest(self) -> Windows:
        """The same without the first axis."""
        rank = len(self.kernel)
        pads = [*self.pads[1:rank], *self.pads[rank + 1 :]]
        return Windows(self.kernel[1:], self.strides[1:], self.dilations[1:], pads)

    def reach(self, axis: int) -> int:
        """From the first to behind the last element that a window covers."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def pad_of(self, axis: int) -> Size:
        """Padding of both sides."""
        return self.pads[axis] + self.pads[axis + len(self.kernel)]

    def room(self, axis: int, size: Size) -> Size:
        """How far the first window can slide along an axis of ``size``."""
        return size + self.pad_of(axis) - self.reach(axis)


def spatial_rank(ctx: OpContext, x: relax.Expr) -> int:
    """How many spatial axes there are, one at least."""
    rank = ctx.rank(x)
    if rank < 3:
        ctx.shape_error(f"the input has rank {rank}; needed: 3 or more")
    return rank - 2


def per_axis(ctx: OpContext, name: str, rank: int, default: int = 1) -> list[int]:
    """An attribute with one number for each spatial axis, for two axes at least."""
    values = ctx.attrs.optional_ints(name) or [default] * rank
    # rten-convert writes the default for two axes where there are more or fewer.
    if values == [default] * 2:
        values = [default] * rank
    if len(values) != rank:
        ctx.shape_error(f'attribute "{name}" has {len(values)} values for {rank} spatial axes')
    if any(v < default for v in values):
        ctx.shape_error(f'attribute "{name}" has the value {min(values)}')
    return [default] * (2 - rank) + values


def fixed_pads(ctx: OpContext, rank: int) -> list[int]:
    """The attribute "pads", for two axes at least."""
    pads = ctx.attrs.optional_ints("pads") or [0] * (2 * rank)
    if pads == [0] * 4:
        pads = [0] * (2 * rank)
    if len(pads) != 2 * rank:
        ctx.shape_error(f'attribute "pads" has {len(pads)} values for {rank} spatial axes')
    return pads if rank > 1 else [0, pads[0], 0, pads[1]]


def read_windows(
    ctx: OpContext, sizes: Sequence[Size], kernel: list[int], dilations: list[int], rank: int
) -> Windows:
    """Strides and padding from the attributes, for an input of these spatial sizes."""
    strides = per_axis(ctx, "strides", rank)
    automatic = ctx.attrs.enum("auto_pad", {"Same": True, "NotSet": False})
    if any(k < 1 for k in kernel):
        ctx.shape_error(f"the kernel has the size {min(kernel)}")
    windows = Windows(kernel, strides, dilations, list(fixed_pads(ctx, rank)))
    if automatic:
        totals = [_same_padding(ctx, size, windows, d) for d, size in enumerate(sizes)]
        before = [_half(t) for t in totals]
        after = [t - b for t, b in zip(totals, before, strict=True)]
        return Windows(kernel, strides, dilations, [*before, *after])
    for d, size in enumerate(sizes):
        message = "the input with its padding is smaller than the kernel"
        at_least(ctx, size + windows.pad_of(d), windows.reach(d), message)
    return windows


def _same_padding(ctx: OpContext, size: Size, windows: Windows, axis: int) -> Size:
    count = ceil_div(size, windows.strides[axis])
    missing = (count - 1) * windows.strides[axis] + windows.reach(axis) - size
    return simplified(ctx, maximum(simplified(ctx, missing), 0))


def _half(size: Size) -> Size:
    return size // 2 if isinstance(size, int) else tirx.floordiv(size, expr(2))


def simplified(ctx: OpContext, size: Size) -> Size:
    """The size as a Python int if that is what it is."""
    if isinstance(size, int):
        return size
    value = ctx.state.analyzer.simplify(size)
    return int(value.value) if isinstance(value, tirx.IntImm) else value


def as_plane(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """A tensor with one spatial axis as one of height 1; others as they are."""
    shape = ctx.shape(x)
    return x if len(shape) > 3 else ctx.reshape(x, [*shape[:2], 1, shape[2]])


def as_line(ctx: OpContext, x: relax.Expr, rank: int) -> relax.Expr:
    """What ``as_plane`` did to an input with ``rank`` spatial axes, undone on a result."""
    shape = ctx.shape(x)
    return x if rank > 1 else ctx.reshape(x, [*shape[:2], shape[3]])
