"""Operators that place elements elsewhere and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Expr

from rten_aot.dialect.broadcast import same
from rten_aot.dialect.direct import direct
from rten_aot.dialect.loops import (
    contiguous,
    copy_run,
    flat_load,
    flat_store,
    int64,
    lanes_of,
    loop,
    parallel,
    product,
    seq,
    static,
)
from rten_aot.dialect.registry import Layout, Pattern, define, define_on_gpu


@define("transpose", pattern=Pattern.INJECTIVE)
def transpose(x: te.Tensor, *, axes: list[int]) -> te.Tensor:
    """``out.shape[i] == x.shape[axes[i]]``; ``axes`` is a permutation counted from 0."""
    inverse = [axes.index(a) for a in range(len(axes))]
    return te.compute(
        [x.shape[a] for a in axes], lambda *i: x(*[i[k] for k in inverse]), name="transpose"
    )


@define("slice", layout=Layout.AXES, pattern=Pattern.INJECTIVE)
def slice_(
    x: te.Tensor,
    begins: list[Expr],
    sizes: list[Expr],
    *,
    axes: list[int],
    steps: list[int],
) -> te.Tensor:
    """Every ``steps[k]``-th element from ``begins[k]`` on, ``sizes[k]`` of them, along ``axes[k]``.

    All these must exist in ``x``: clamping is the caller's business.
    """
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size

    def element(*index: Expr) -> Expr:
        where = list(index)
        for axis, begin, step in zip(axes, begins, steps, strict=True):
            where[axis] = begin + where[axis] * int64(step)
        return x(*where)

    return te.compute(shape, element, name="slice")


@define("slice_by", pattern=Pattern.INJECTIVE)
def slice_by(x: te.Tensor, begins: list[Expr], sizes: list[Expr], steps: list[Expr]) -> te.Tensor:
    """As ``slice``, along all axes, with steps that are known at run time only."""

    def element(*index: Expr) -> Expr:
        return x(*[b + i * s for b, i, s in zip(begins, index, steps, strict=True)])

    return te.compute(sizes, element, name="slice")


@define("expand", pattern=Pattern.BROADCAST)
def expand(x: te.Tensor, sizes: list[Expr]) -> te.Tensor:
    """``x`` broadcast to ``sizes``, whose rank is that of ``x`` or more.

    Sizes of ``x`` are 1 or equal to the one asked for, which the caller has checked; which of both
    is decided at run time where it is not plain.
    """
    offset = len(sizes) - len(x.shape)

    def element(*index: Expr) -> Expr:
        return x(
            *[
                _broadcast_index(have, want, i)
                for have, want, i in zip(x.shape, sizes[offset:], index[offset:], strict=True)
            ]
        )

    return te.compute(sizes, element, name="expand")


def _broadcast_index(have: Expr, want: Expr, index: Expr) -> Expr:
    if static(have) == 1:
        return int64(0)
    if static(have) is not None or same(have, want):
        return index
    return tirx.Select(tirx.EQ(have, int64(1)), int64(0), index)


@define("pad", layout=Layout.AXES, pattern=Pattern.INJECTIVE)
def pad(
    x: te.Tensor,
    befores: list[Expr],
    afters: list[Expr],
    *value: te.Tensor,
    axes: list[int],
    mode: str,
    constant: int | float = 0,
) -> te.Tensor:
    """Add ``befores[k]`` and ``afters[k]`` elements along ``axes[k]``; negative counts remove.

    What is removed goes first, so that modes reflect, edge and wrap see the rest only. Mode
    constant fills with the attribute, or with the 0-d tensor ``value`` if it is given.
    """
    shape = list(x.shape)
    for axis, before, after in zip(axes, befores, afters, strict=True):
        shape[axis] = shape[axis] + before + after
    filler = value[0]() if value else tirx.const(constant, str(x.dtype))

    def element(*index: Expr) -> Expr:
        where = list(index)
        inside: Expr | None = None
        for axis, before, after in zip(axes, befores, afters, strict=True):
            if static(before) == 0 and static(after) == 0:
                continue
            where[axis] = index[axis] - before
            if mode == "constant":
                inside = _and(inside, *_bounds(where[axis], x.shape[axis], before, after))
            else:
                where[axis] = _map_index(where[axis], x.shape[axis], before, after, mode)
        if inside is None:
            return x(*where)
        return tirx.if_then_else(inside, x(*where), filler)

    return te.compute(shape, element, name="pad")


def _and(first: Expr | None, *more: Expr) -> Expr | None:
    result = first
    for condition in more:
        result = condition if result is None else tirx.And(result, condition)
    return result


def _bounds(index: Expr, size: Expr, before: Expr, after: Expr) -> list[Expr]:
    checks = []
    if (known := static(before)) is None or known > 0:
        checks.append(index >= int64(0))
    if (known := static(after)) is None or known > 0:
        checks.append(index < size)
    return checks


def _map_index(index: Expr, size: Expr, before: Expr, after: Expr, mode: str) -> Expr:
    first = _positive(int64(0) - before)
    kept = size - first - _positive(int64(0) - after)
    index = index - first
    if mode == "edge":
        inside = tirx.Select(index >= kept, kept - int64(1), index)
        return first + tirx.Select(inside < int64(0), int64(0), inside)
    if mode == "wrap":
        return first + tirx.floormod(index, kept)
    # There and back again; a single element has no neighbours to mirror.
    last = kept - int64(1)
    period = tirx.Select(last < int64(1), int64(1), last * int64(2))
    folded = tirx.floormod(index, period)
    return first + tirx.Select(folded > last, period - folded, folded)


def _positive(value: Expr) -> Expr:
    known = static(value)
    if known is not None:
        return int64(max(known, 0))
    return tirx.Select(value > int64(0), value, int64(0))


@define("pad_places", pattern=Pattern.OPAQUE)
def pad_places(counts: list[Expr], *, mode: str) -> te.Tensor:
    """Where each element of a padded axis comes from: modes reflect, edge and wrap.

    ``counts``: elements before and after, and the size of the axis. With sizes that are known at
    run time only, TVM takes very long over such formulas among the indices of a kernel.
    """
    before, after, size = counts
    length = size + before + after

    def body(_ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        return loop(
            length,
            lambda i: flat_store(outs[0], i, _map_index(i - before, size, before, after, mode)),
        )

    result = direct([[length]], [], body, ["int64"], "pad_places")
    assert isinstance(result, te.Tensor)
    return result


@define("take_places", pattern=Pattern.INJECTIVE)
def take_places(x: te.Tensor, *places: te.Tensor, axes: list[int]) -> te.Tensor:
    """``x`` with its elements along ``axes[k]`` those at ``places[k]``, which all exist."""
    by_axis = dict(zip(axes, places, strict=True))
    shape = [by_axis[a].shape[0] if a in by_axis else size for a, size in enumerate(x.shape)]

    def element(*index: Expr) -> Expr:
        return x(*[by_axis[a](i) if a in by_axis else i for a, i in enumerate(index)])

    return te.compute(shape, element, name="take_places")


@define("concat", layout=Layout.AXES, pattern=Pattern.OPAQUE)
def concat(*xs: te.Tensor, axis: int) -> te.Tensor:
    """The operands one after the other along ``axis``; their other sizes agree."""
    first = xs[0]
    total: Expr = int64(0)
    for x in xs:
        total = total + x.shape[axis]
    shape = [*first.shape[:axis], total, *first.shape[axis + 1 :]]
    outer = product(first.shape[:axis])
    runs = [product(x.shape[axis:]) for x in xs]

    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        return _join(ins, outs[0], outer, runs)

    return direct([shape], list(xs), body, [str(first.dtype)], "concat")


@define_on_gpu("concat", pattern=Pattern.INJECTIVE)
def concat_on_gpu(*xs: te.Tensor, axis: int) -> te.Tensor:
    """As ``concat``: each element finds the operand that it is from."""
    starts: list[Expr] = [int64(0)]
    for x in xs:
        starts.append(starts[-1] + x.shape[axis])
    shape = [*xs[0].shape[:axis], starts[-1], *xs[0].shape[axis + 1 :]]

    def element(*index: Expr) -> Expr:
        def own(k: int) -> Expr:
            return xs[k](*index[:axis], index[axis] - starts[k], *index[axis + 1 :])

        def among(first: int, last: int) -> Expr:
            if last - first == 1:
                return own(first)
            middle = (first + last) // 2
            before = among(first, middle)
            return tirx.if_then_else(index[axis] < starts[middle], before, among(middle, last))

        return among(0, len(xs))

    return te.compute(shape, element, name="concat")


def _join(
    ins: Sequence[tirx.Buffer], out: tirx.Buffer, outer: Expr, runs: Sequence[Expr]
) -> tirx.Stmt:
    starts = [int64(0)]
    for run in runs:
        starts.append(starts[-1] + run)
    row = starts[-1]
    if static(outer) == 1:
        parts = zip(ins, starts, runs, strict=False)
        return seq(*[copy_run(source, int64(0), out, to, run) for source, to, run in parts])
    lanes = lanes_of(str(out.dtype))

    def one_row(o: Expr) -> tirx.Stmt:
        return seq(
            *[
                contiguous(
                    run,
                    lanes,
                    lambda i, s=source, t=to, r=run: flat_store(
                        out, o * row + t + i, flat_load(s, o * r + i)
                    ),
                )
                for source, to, run in zip(ins, starts, runs, strict=False)
            ]
        )

    return parallel(outer, outer * row, one_row)
