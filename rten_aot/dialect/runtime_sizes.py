"""Kernels that compute sizes from operands: int64 vectors for ``OpContext.measure``.

What is no size is a run-time failure; the host program uses no sizes of a run that has failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.tirx import Buffer, Expr, IfThenElse, Stmt

from rten_aot.dialect.direct import direct
from rten_aot.dialect.failure import Failure, fail
from rten_aot.dialect.loops import Cell, flat_load, flat_store, int64, product, seq, static
from rten_aot.dialect.registry import Pattern, define

_LONGEST = float(1 << 40)
"""What the importer takes every size to be less than."""
_EXACT = float(1 << 53)
"""Whole numbers below are exact as float64; no tensor has so many elements."""


def _f64(value: float) -> Expr:
    return tirx.const(value, "float64")


def _check(ok: Expr, value: Expr, node: int, bad: Expr, kind: Failure) -> Expr:
    """``value``, or 0 after the failure has been recorded."""
    return tirx.if_then_else(ok, value, tirx.Cast("int64", fail(kind, node, bad)))


def _fit(ok: Expr, value: Expr, node: int, bad: Expr) -> Expr:
    return _check(ok, value, node, bad, Failure.SHAPE_MISMATCH)


def _wide(buffer: Buffer, at: int | Expr = 0) -> Expr:
    return tirx.Cast("int64", flat_load(buffer, at))


def _vector(count: int, inputs: Sequence[te.Tensor], body: object, name: str) -> te.Tensor:
    result = direct([[int64(count)]], inputs, body, ["int64"], name)  # type: ignore[arg-type]
    assert isinstance(result, te.Tensor)
    return result


def _count(x: te.Tensor) -> int:
    count = static(product(x.shape))
    assert count is not None
    return count


@define("to_sizes", pattern=Pattern.OPAQUE)
def to_sizes(x: te.Tensor, *, signed: bool, node: int, lowest: int | None = None) -> te.Tensor:
    """The elements of an integer tensor; negative ones are a failure unless they are allowed.

    ``lowest`` takes the place of all that is less.
    """
    count = _count(x)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        stores = []
        for i in range(count):
            value = _wide(ins[0], i)
            if lowest is not None:
                value = tirx.max(value, int64(lowest))
            good = value if signed else _fit(value >= int64(0), value, node, value)
            stores.append(flat_store(outs[0], i, good))
        return seq(*stores)

    return _vector(count, [x], body, "to_sizes")


@define("reshape_sizes", pattern=Pattern.OPAQUE)
def reshape_sizes(shape: te.Tensor, old: list[Expr], *, allow_zero: bool, node: int) -> te.Tensor:
    """The shape that ONNX Reshape makes of ``old``: -1 is inferred, 0 copied if not allowed."""
    count = _count(shape)

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
            copied = old[i] if i < len(old) else _fit(tirx.const(0, "bool"), value.get(), node, i64)
            keep = None if allow_zero else value.set(copied)
            known = seq(
                zeros.set(zeros.get() + tirx.Cast("int64", tirx.EQ(value.get(), int64(0)))),
                rest.set(rest.get() * tirx.max(value.get(), int64(1))),
                estimate.set(
                    estimate.get() * tirx.Cast("float64", tirx.max(value.get(), int64(1)))
                ),
            )
            infer = inferred.set(
                _fit(inferred.get() < int64(0), int64(i), node, value.get()),
            )
            return seq(
                value.set(_wide(ins[0], i)),
                value.set(_fit(value.get() >= int64(-1), value.get(), node, value.get())),
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
            flat_store(outs[0], inferred.get(), _fit(fits, size, node, rest.get())),
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

    return _vector(count, [shape], body, "reshape_sizes")


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
    rank, count = len(sizes), _count(starts)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        out = outs[0]
        size, axis, step = Cell("size", size=max(rank, 1)), Cell("axis"), Cell("step")
        first, last = Cell("first"), Cell("last")

        def one(j: int) -> Stmt:
            stated = _wide(ins[2], j) if axes else int64(j)
            place = tirx.Select(stated < int64(0), stated + int64(rank), stated)
            ok = tirx.And(place >= int64(0), place < int64(rank))
            where = axis.get()
            length = size.get(where)
            unset = tirx.EQ(flat_load(out, int64(2 * rank) + where), int64(0))
            own = _wide(ins[-1], j) if steps else int64(1)
            nonzero = tirx.And(unset, tirx.NE(step.get(), int64(0)))
            forward = step.get() > int64(0)
            low = tirx.Select(forward, int64(0), int64(-1))
            high = tirx.Select(forward, length, length - int64(1))
            stride = tirx.Select(forward, step.get(), int64(0) - step.get())
            distance = tirx.Select(forward, last.get() - first.get(), first.get() - last.get())
            many = tirx.truncdiv(distance + stride - int64(1), stride)
            return seq(
                axis.set(_check(ok, place, node, stated, Failure.INDEX_OUT_OF_RANGE)),
                step.set(own),
                step.set(tirx.Select(nonzero, step.get(), _fit(nonzero, int64(1), node, own) + 1)),
                first.set(_clamped(_wide(ins[0], j), length, low, high)),
                last.set(_clamped(_wide(ins[1], j), length, low, high)),
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

    return _vector(3 * rank, tensors, body, "slice_extents")


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
            wide_a, wide_b, wide_d = (_wide(x) for x in ins)
            forward = wide_d > int64(0)
            distance = tirx.Select(forward, wide_b - wide_a, wide_a - wide_b)
            stride = tirx.max(tirx.Select(forward, wide_d, int64(0) - wide_d), int64(1))
            many = tirx.max(tirx.truncdiv(distance + stride - int64(1), stride), int64(0))
            good = tirx.NE(wide_d, int64(0))
            return flat_store(
                outs[0], 0, _check(good, many, node, wide_d, Failure.DIVISION_BY_ZERO)
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
                _check(
                    nonzero,
                    _fit(finite, many, node, int64(-1)),
                    node,
                    int64(0),
                    Failure.DIVISION_BY_ZERO,
                ),
            ),
        )

    return _vector(1, [start, limit, delta], body, "range_count")


@define("axes_sizes", pattern=Pattern.OPAQUE)
def axes_sizes(axes: te.Tensor, sizes: list[Expr], *, insert: bool, node: int) -> te.Tensor:
    """The shape ``sizes`` with axes of size 1 put in where ``axes`` says, or taken away there."""
    count = _count(axes)
    rank = len(sizes) + count if insert else len(sizes)
    left = rank if insert else rank - count

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        named = Cell("named", size=max(rank, 1))
        axis, position = Cell("axis"), Cell("position")

        def mark(j: int) -> Stmt:
            stated = _wide(ins[0], j)
            place = tirx.Select(stated < int64(0), stated + int64(rank), stated)
            ok = tirx.And(place >= int64(0), place < int64(rank))
            once = tirx.EQ(named.get(axis.get()), int64(0))
            return seq(
                axis.set(_check(ok, place, node, stated, Failure.INDEX_OUT_OF_RANGE)),
                named.set(_fit(once, int64(1), node, stated), axis.get()),
            )

        def put(size: Expr) -> Stmt:
            room = position.get() < int64(left)
            store = flat_store(outs[0], position.get(), size)
            return seq(IfThenElse(room, store, None), position.set(position.get() + int64(1)))

        def removed(a: int) -> Stmt:
            one = _fit(tirx.EQ(sizes[a], int64(1)), int64(1), node, sizes[a])
            gone = tirx.NE(named.get(a), int64(0))
            return IfThenElse(gone, tirx.Evaluate(one), put(sizes[a]))

        def inserted(a: int) -> Stmt:
            source = Cell("source", size=max(len(sizes), 1))
            new = tirx.NE(named.get(a), int64(0))
            own = flat_store(
                outs[0], a, source.get(tirx.min(position.get(), int64(len(sizes) - 1)))
            )
            fill = [source.set(size, k) for k, size in enumerate(sizes)]
            if not sizes:
                return flat_store(outs[0], a, int64(1))
            take = seq(source.declare, *fill, own, position.set(position.get() + int64(1)))
            return IfThenElse(new, flat_store(outs[0], a, int64(1)), take)

        each = inserted if insert else removed
        return seq(
            named.declare,
            axis.declare,
            position.declare,
            position.set(int64(0)),
            *[named.set(int64(0), a) for a in range(rank)],
            *[mark(j) for j in range(count)],
            *[each(a) for a in range(rank)],
        )

    return _vector(left, [axes], body, "axes_sizes")


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
            good = _fit(ok, whole, node, bad)
            if d < fixed:
                one = tirx.EQ(scale, tirx.const(1.0, "float32"))
                good = _check(one, size, node, bad, Failure.NOT_SUPPORTED)
            stores.append(flat_store(outs[0], d, good))
        return seq(*stores)

    return _vector(len(sizes), [scales], body, "scaled_sizes")
