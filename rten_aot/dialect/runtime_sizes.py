"""Kernels that compute sizes from operands: int64 vectors for ``OpContext.measure``.

What is no size is a run-time failure; the host program uses no sizes of a run that has failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, IfThenElse, Stmt

from rten_aot.dialect.failure import Failure, fail
from rten_aot.dialect.loops import Cell, flat_load, flat_store, int64, product, seq
from rten_aot.dialect.registry import Pattern, define
from rten_aot.dialect.size_vectors import checked, count_of, fitting, size_vector, wide

_LONGEST = float(1 << 40)
"""What the importer takes every size to be less than."""
_EXACT = float(1 << 53)
"""Whole numbers below are exact as float64; no tensor has so many elements."""


def _f64(value: float) -> Expr:
    return tirx.const(value, "float64")


@define("to_sizes", pattern=Pattern.OPAQUE)
def to_sizes(x: te.Tensor, *, signed: bool, node: int, lowest: int | None = None) -> te.Tensor:
    """The elements of an integer tensor; negative ones are a failure unless they are allowed.

    ``lowest`` takes the place of all that is less.
    """
    count = count_of(x)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        stores = []
        for i in range(count):
            value = wide(ins[0], i)
            if lowest is not None:
                value = tirx.max(value, int64(lowest))
            good = value if signed else fitting(value >= int64(0), value, node, value)
            stores.append(flat_store(outs[0], i, good))
        return seq(*stores)

    return size_vector(count, [x], body, "to_sizes")


@define("reshape_sizes", pattern=Pattern.OPAQUE)
def reshape_sizes(shape: te.Tensor, old: list[Expr], *, allow_zero: bool, node: int) -> te.Tensor:
    """The shape that ONNX Reshape makes of ``old``: -1 is inferred, 0 copied if not allowed."""
    count = count_of(shape)

    def zeros_and_rest(sizes: Sequence[Expr]) -> tuple[Expr, Expr]:
        zeros: Expr = int64(0)
        for size in sizes:
            zeros = zeros + tirx.Cast("int64", tirx.EQ(size, int64(0)))
        return zeros, product([tirx.max(size, int64(1)) for size in sizes])

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        value, inferred = Cell("value"), Cell("inferred")
        zeros, rest, estimate = Cell("zeros"), Cell("rest"), Cell("estimate", "float64")
        old_zeros, old_rest = zeros_and_rest(old)

        def one(i: int) -> Stmt:
            nowhere = fitting(tirx.const(0, "bool"), value.get(), node, i64)
            copied = old[i] if i < len(old) else nowhere
            keep = None if allow_zero else value.set(copied)
            known = seq(
                zeros.set(zeros.get() + tirx.Cast("int64", tirx.EQ(value.get(), int64(0)))),
                rest.set(rest.get() * tirx.max(value.get(), int64(1))),
                estimate.set(
                    estimate.get() * tirx.Cast("float64", tirx.max(value.get(), int64(1)))
                ),
            )
            infer = inferred.set(
                fitting(inferred.get() < int64(0), int64(i), node, value.get()),
            )
            return seq(
                value.set(wide(ins[0], i)),
                value.set(fitting(value.get() >= int64(-1), value.get(), node, value.get())),
                keep and IfThenElse(tirx.EQ(value.get(), int64(0)), keep, None),
                IfThenElse(tirx.EQ(value.get(), int64(-1)), infer, known),
                flat_store(outs[0], i, value.get()),
            )

        i64 = int64(0)
        divisor = tirx.max(rest.get(), int64(1))
        quotient = tirx.truncdiv(old_rest, divisor)
        fits = tirx.And(
            estimate.get() < _f64(_EXACT),
            tirx.And(
                zeros.get() <= old_zeros,
                tirx.Or(zeros.get() < old_zeros, tirx.EQ(quotient * divisor, old_rest)),
            ),
        )
        size = tirx.Select(zeros.get() < old_zeros, int64(0), quotient)
        same = tirx.Select(
            tirx.Or(zeros.get() > int64(0), old_zeros > int64(0)),
            tirx.And(zeros.get() > int64(0), old_zeros > int64(0)),
            tirx.And(estimate.get() < _f64(_EXACT), tirx.EQ(rest.get(), old_rest)),
        )
        refuse = tirx.Evaluate(fail(Failure.SHAPE_MISMATCH, node, rest.get()))
        finish = IfThenElse(
            inferred.get() >= int64(0),
            flat_store(outs[0], inferred.get(), fitting(fits, size, node, rest.get())),
            IfThenElse(same, tirx.Evaluate(int64(0)), refuse),
        )
        cells = (value, inferred, zeros, rest, estimate)
        return seq(
            *[cell.declare for cell in cells],
            inferred.set(int64(-1)),
            zeros.set(int64(0)),
            rest.set(int64(1)),
            estimate.set(_f64(1.0)),
            *[one(i) for i in range(count)],
            finish,
        )

    return size_vector(count, [shape], body, "reshape_sizes")


@define("slice_extents", pattern=Pattern.OPAQUE)
def slice_extents(
    starts: te.Tensor,
    ends: te.Tensor,
    *more: te.Tensor | list[Expr],
    axes: bool,
    steps: bool,
    node: int,
) -> te.Tensor:
    """For each axis of a tensor: the first element of a slice; the number of elements; the step.

    ``more`` are the axes and the steps, those that the attributes of the same names announce, and
    the tensor's shape.
    """
    *given, sizes = more
    assert isinstance(sizes, list)
    tensors = [starts, ends, *[t for t in given if isinstance(t, te.Tensor)]]
    rank, count = len(sizes), count_of(starts)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        out = outs[0]
        size, axis, step = Cell("size", size=max(rank, 1)), Cell("axis"), Cell("step")
        first, last = Cell("first"), Cell("last")

        def one(j: int) -> Stmt:
            stated = wide(ins[2], j) if axes else int64(j)
            place = tirx.Select(stated < int64(0), stated + int64(rank), stated)
            ok = tirx.And(place >= int64(0), place < int64(rank))
            where = axis.get()
            length = size.get(where)
            unset = tirx.EQ(flat_load(out, int64(2 * rank) + where), int64(0))
            own = wide(ins[-1], j) if steps else int64(1)
            nonzero = tirx.And(unset, tirx.NE(step.get(), int64(0)))
            usable = fitting(nonzero, int64(1), node, own)
            forward = step.get() > int64(0)
            low = tirx.Select(forward, int64(0), int64(-1))
            high = tirx.Select(forward, length, length - int64(1))
            stride = tirx.Select(forward, step.get(), int64(0) - step.get())
            distance = tirx.Select(forward, last.get() - first.get(), first.get() - last.get())
            many = tirx.truncdiv(distance + stride - int64(1), stride)
            return seq(
                axis.set(checked(ok, place, node, stated, Failure.INDEX_OUT_OF_RANGE)),
                step.set(own),
                step.set(tirx.Select(nonzero, step.get(), usable + 1)),
                first.set(_clamped(wide(ins[0], j), length, low, high)),
                last.set(_clamped(wide(ins[1], j), length, low, high)),
                flat_store(out, int64(rank) + where, tirx.max(many, int64(0))),
                flat_store(out, where, tirx.max(first.get(), int64(0))),
                flat_store(out, int64(2 * rank) + where, step.get()),
            )

        def reset(a: int) -> Stmt:
            return seq(
                size.set(sizes[a], a),
                flat_store(out, a, int64(0)),
                flat_store(out, rank + a, sizes[a]),
                flat_store(out, 2 * rank + a, int64(0)),
            )

        def settle(a: int) -> Stmt:
            own = flat_load(out, 2 * rank + a)
            return IfThenElse(tirx.EQ(own, int64(0)), flat_store(out, 2 * rank + a, int64(1)), None)

        cells = (size, axis, step, first, last)
        return seq(
            *[cell.declare for cell in cells],
            *[reset(a) for a in range(rank)],
            *[one(j) for j in range(count)],
            *[settle(a) for a in range(rank)],
        )

    return size_vector(3 * rank, tensors, body, "slice_extents")


def _clamped(position: Expr, size: Expr, low: Expr, high: Expr) -> Expr:
    place = tirx.Select(position < int64(0), position + size, position)
    return tirx.max(low, tirx.min(high, place))


@define("range_count", pattern=Pattern.OPAQUE)
def range_count(start: te.Tensor, limit: te.Tensor, delta: te.Tensor, *, node: int) -> te.Tensor:
    """How many numbers there are from ``start`` to ``limit``, exclusive, ``delta`` apart."""
    float_ = str(start.dtype) == "float32"

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        a, b, d = (tirx.Cast("float64", flat_load(x, 0)) for x in ins)
        if not float_:
            wide_a, wide_b, wide_d = (wide(x) for x in ins)
            forward = wide_d > int64(0)
            distance = tirx.Select(forward, wide_b - wide_a, wide_a - wide_b)
            stride = tirx.max(tirx.Select(forward, wide_d, int64(0) - wide_d), int64(1))
            many = tirx.max(tirx.truncdiv(distance + stride - int64(1), stride), int64(0))
            good = tirx.NE(wide_d, int64(0))
            return flat_store(
                outs[0], 0, checked(good, many, node, wide_d, Failure.DIVISION_BY_ZERO)
            )
        quotient = Cell("quotient", "float64")
        steps = tirx.ceil((b - a) / d)
        finite = tirx.And(quotient.get() < _f64(_LONGEST), quotient.get() > _f64(-float("inf")))
        many = tirx.Cast("int64", tirx.Select(quotient.get() > _f64(0), quotient.get(), _f64(0)))
        nonzero = tirx.NE(d, _f64(0))
        return seq(
            quotient.declare,
            quotient.set(steps),
            flat_store(
                outs[0],
                0,
                checked(
                    nonzero,
                    fitting(finite, many, node, int64(-1)),
                    node,
                    int64(0),
                    Failure.DIVISION_BY_ZERO,
                ),
            ),
        )

    return size_vector(1, [start, limit, delta], body, "range_count")


@define("scaled_sizes", pattern=Pattern.OPAQUE)
def scaled_sizes(scales: te.Tensor, sizes: list[Expr], *, fixed: int, node: int) -> te.Tensor:
    """``floor(size * scale)`` in float32, for each axis; the first ``fixed`` scales must be 1."""

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        stores = []
        for d, size in enumerate(sizes):
            scale = flat_load(ins[0], d)
            whole = tirx.Cast("int64", tirx.Cast("float32", size) * scale)
            limit = tirx.const(float(1 << 31), "float32")
            ok = tirx.And(scale > tirx.const(0.0, "float32"), scale < limit)
            bad = tirx.Cast("int64", tirx.Select(ok, scale, tirx.const(0.0, "float32")))
            good = fitting(ok, whole, node, bad)
            if d < fixed:
                one = tirx.EQ(scale, tirx.const(1.0, "float32"))
                good = checked(one, size, node, bad, Failure.NOT_SUPPORTED)
            stores.append(flat_store(outs[0], d, good))
        return seq(*stores)

    return size_vector(len(sizes), [scales], body, "scaled_sizes")
