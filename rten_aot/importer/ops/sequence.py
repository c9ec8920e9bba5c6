"""Operators on sequences of tensors, whose length must be known at compile time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

import rten_aot.dialect.indexing  # noqa: F401  (defines what is emitted here)
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.known import numbers_of
from rten_aot.importer.ops.concat import joined, stacked
from rten_aot.importer.ops.slice import cut
from rten_aot.importer.registry import op
from rten_aot.importer.runtime_sizes import sizes
from rten_aot.importer.sequences import TensorSequence
from rten_aot.importer.sizes import one_element

_LIMITS = "the length of the sequence must be known at compile time"
_TYPES = ("Int32", "Float", "Int8", "UInt8")


def _items(ctx: OpContext, sequence: TensorSequence | relax.Expr) -> tuple[relax.Expr, ...]:
    if not isinstance(sequence, TensorSequence):
        ctx.fail("the first input is no sequence")
    return sequence.items


def _tensors(ctx: OpContext, values: Sequence[relax.Expr]) -> TensorSequence:
    if any(isinstance(x, TensorSequence) for x in values):
        ctx.fail("sequences of sequences are not supported")
    types = {ctx.dtype(x) for x in values}
    if len(types) > 1:
        ctx.shape_error(f"a sequence of different types: {', '.join(sorted(types))}")
    return TensorSequence(tuple(values))


def _position(ctx: OpContext, position: relax.Expr, end: int) -> int | None:
    """A place counted from 0, in [0, end); None if the model computes it."""
    one_element(ctx, position, "the position")
    numbers = numbers_of(ctx, position)
    if numbers is None:
        return None
    place = int(numbers.flat[0])
    if not -end <= place < end:
        ctx.shape_error(f"position {place} is out of range for a sequence of {end}")
    return place % end


@op("SequenceEmpty", limits=_LIMITS)
def sequence_empty(ctx: OpContext) -> TensorSequence:
    """https://onnx.ai/onnx/operators/onnx__SequenceEmpty.html."""
    ctx.attrs.enum("dtype", dict.fromkeys(_TYPES), default="Float")
    return TensorSequence(())


@op("SequenceConstruct", limits=_LIMITS)
def sequence_construct(ctx: OpContext, *xs: relax.Expr) -> TensorSequence:
    """https://onnx.ai/onnx/operators/onnx__SequenceConstruct.html."""
    return _tensors(ctx, xs)


@op("SequenceLength", limits=_LIMITS, sequences=True)
def sequence_length(ctx: OpContext, sequence: TensorSequence) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__SequenceLength.html."""
    return ctx.const(len(_items(ctx, sequence)), "int32")


@op("SequenceAt", limits=_LIMITS, sequences=True)
def sequence_at(ctx: OpContext, sequence: TensorSequence, position: Integers) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__SequenceAt.html.

    A position that the model computes needs tensors of one shape.
    """
    items = _items(ctx, sequence)
    place = _position(ctx, position, len(items))
    if place is not None:
        return items[place]
    if not items or any(ctx.rank(x) != ctx.rank(items[0]) for x in items):
        ctx.fail("the position must be known at compile time where tensors differ in rank")
    together = stacked(ctx, items, 0)
    index = ctx.reshape(position, [])
    return ctx.call("gather", together, index, axis=0, node=ctx.node_index)


@op("SequenceInsert", limits=f"{_LIMITS}; so must the position", sequences=True)
def sequence_insert(
    ctx: OpContext,
    sequence: TensorSequence,
    x: relax.Expr,
    position: Integers | None = None,
) -> TensorSequence:
    """https://onnx.ai/onnx/operators/onnx__SequenceInsert.html: at the end if nothing is said."""
    items = list(_items(ctx, sequence))
    place: int | None = len(items)
    if position is not None:
        numbers = numbers_of(ctx, position)
        at_end = numbers is not None and numbers.size == 1 and int(numbers.flat[0]) == len(items)
        place = len(items) if at_end else _position(ctx, position, len(items))
    if place is None:
        ctx.fail("the position must be known at compile time")
    items.insert(place, x)
    return _tensors(ctx, items)


@op("SequenceErase", limits=f"{_LIMITS}; so must the position", sequences=True)
def sequence_erase(
    ctx: OpContext, sequence: TensorSequence, position: Integers | None = None
) -> TensorSequence:
    """https://onnx.ai/onnx/operators/onnx__SequenceErase.html: the last one if nothing is said."""
    items = list(_items(ctx, sequence))
    if not items:
        ctx.shape_error("there is nothing to erase in an empty sequence")
    place = len(items) - 1 if position is None else _position(ctx, position, len(items))
    if place is None:
        ctx.fail("the position must be known at compile time")
    del items[place]
    return TensorSequence(tuple(items))


@op("ConcatFromSequence", limits=_LIMITS, sequences=True)
def concat_from_sequence(ctx: OpContext, sequence: TensorSequence) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__ConcatFromSequence.html."""
    axis, new_axis = ctx.attrs.int("axis"), ctx.attrs.bool("new_axis")
    items = _items(ctx, sequence)
    if not items:
        ctx.shape_error("the sequence is empty")
    return stacked(ctx, items, axis) if new_axis else joined(ctx, items, axis)


@op("SplitToSequence", limits=_LIMITS)
def split_to_sequence(
    ctx: OpContext, x: relax.Expr, split: Integers | None = None
) -> TensorSequence:
    """https://onnx.ai/onnx/operators/onnx__SplitToSequence.html.

    ``split`` holds the sizes of the parts, or as a number (rank 0) the size of all but the last.
    """
    axis = ctx.normalize_axis(ctx.attrs.int("axis"), ctx.rank(x))
    keep_dims = ctx.attrs.bool("keep_dims", default=True)
    parts = _parts(ctx, ctx.shape(x)[axis], split)
    results = []
    start: Size = 0
    for part in parts:
        piece = cut(ctx, x, [(axis, start, part, 1)])
        start = start + part
        if split is None and not keep_dims:
            piece = ctx.reshape(piece, [n for i, n in enumerate(ctx.shape(piece)) if i != axis])
        results.append(piece)
    return TensorSequence(tuple(results))


def _parts(ctx: OpContext, total: Size, split: relax.Expr | None) -> list[Size]:
    if split is not None and ctx.rank(split) > 0:
        parts = sizes(ctx, split, "the sizes of the parts")
        together = sum(parts[1:], parts[0]) if parts else 0
        ctx.equal_dims(together, total, "sum of parts and axis: sizes")
        return parts
    step = 1
    if split is not None:
        numbers = numbers_of(ctx, split)
        if numbers is None:
            ctx.fail("the size of the parts must be known at compile time")
        step = int(numbers.flat[0])
    if not isinstance(total, int):
        ctx.fail("the size of the axis must be known at compile time")
    if step < 1:
        ctx.shape_error(f"{step} is no size of parts")
    starts = np.arange(0, total, step)
    return [int(min(step, total - start)) for start in starts]
