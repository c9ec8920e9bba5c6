"""Loop: https://onnx.ai/onnx/operators/onnx__Loop.html."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax, tirx

import rten_aot.dialect.generate  # noqa: F401  (defines what is emitted here)
from rten_aot.dialect.control import while_loop
from rten_aot.format.graph import Graph
from rten_aot.importer.context import Integers, OpContext, Size
from rten_aot.importer.known import numbers_of
from rten_aot.importer.ops.concat import stacked
from rten_aot.importer.ops.control_flow import Captures
from rten_aot.importer.registry import all_operators, op
from rten_aot.importer.runtime_sizes import measured
from rten_aot.importer.sequences import TensorSequence
from rten_aot.importer.sizes import expr, one_element, text
from rten_aot.importer.translate import (
    captured,
    fresh_sizes,
    with_sizes,
)

MAX_UNROLLED = 2000
"""A loop becomes straight-line code if that has no more operators than this."""


MOST_TRIPS = 2**31 - 1
"""Of a loop that has only a condition: the number of the iteration is an int32."""


@op(
    "Loop",
    data_dependent=True,
    limits="where only a run tells the number of iterations, carried values keep their shapes, "
    "and scan outputs need a limit, which memory is taken for",
    sequences=True,
)
def loop(
    ctx: OpContext,
    trips: Integers | None = None,
    condition: relax.Expr | None = None,
    *initial: relax.Expr,
) -> list[relax.Expr]:
    """The body again and again, in straight-line code where that is known to be short.

    Without a condition, what the body says of it counts only if there is no limit either.
    """
    body = _Body(ctx, ctx.attrs.graph("body"), list(initial))
    if trips is not None:
        trips = one_element(ctx, trips, "the trip count")
    if condition is not None:
        condition = one_element(ctx, condition, "the condition")
    results = _unrolled(body, _number(ctx, trips), trips is not None, condition)
    return _repeated(body, trips, condition) if results is None else results


def _number(ctx: OpContext, x: relax.Expr | None) -> int | None:
    numbers = None if x is None else numbers_of(ctx, x)
    return None if numbers is None else int(numbers.flat[0])


@dataclass
class _Body:
    """The graph of one iteration, in the surroundings of the node ``ctx``."""

    ctx: OpContext
    graph: Graph
    initial: list[relax.Expr]

    def __post_init__(self) -> None:
        carried = len(self.initial)
        if len(self.graph.inputs) != carried + 2 or len(self.graph.outputs) < carried + 1:
            self.ctx.shape_error(
                f"{carried} values are carried, but the body has {len(self.graph.inputs)} inputs "
                f"and {len(self.graph.outputs)} outputs"
            )

    @property
    def operators(self) -> int:
        """How many operators one iteration has."""
        return sum(1 for _ in all_operators(self.graph))

    def iteration(
        self, number: int, condition: relax.Expr, carried: list[relax.Expr]
    ) -> list[relax.Expr]:
        """Condition, carried values and scan outputs of one iteration."""
        operands = [self.ctx.const(number, "int32"), condition, *carried]
        values = dict(zip(self.graph.inputs, operands, strict=True))
        return self.ctx.translator.inline(self.graph, values, self.ctx.scope, self.ctx.state)


def _unrolled(
    body: _Body, limit: int | None, limited: bool, condition: relax.Expr | None
) -> list[relax.Expr] | None:
    """The results of straight-line code; None, and nothing emitted, if it cannot be that."""
    ctx, carried = body.ctx, list(body.initial)
    if limited and (limit is None or limit * max(body.operators, 1) > MAX_UNROLLED):
        return None
    before = list(ctx.state.checks), list(ctx.state.measured), dict(ctx.translator.functions)
    flag = ctx.const(1, "int32") if condition is None else condition
    scans: list[list[relax.Expr]] = [[] for _ in body.graph.outputs[len(carried) + 1 :]]
    number, operators = 0, 0
    while limit is None or number < limit:
        go_on = 1 if condition is None and number == 0 else _number(ctx, flag)
        if go_on is None or operators > MAX_UNROLLED:
            ctx.state.checks[:], ctx.state.measured[:] = before[0], before[1]
            ctx.translator.functions.clear()
            ctx.translator.functions.update(before[2])
            return None
        if not go_on:
            break
        results = body.iteration(number, flag, carried)
        # A loop without a condition has none that the body could change.
        flag = results[0] if condition is not None or limit is None else flag
        carried = results[1 : len(carried) + 1]
        for scan, value in zip(scans, results[len(carried) + 1 :], strict=True):
            scan.append(value)
        number, operators = number + 1, operators + body.operators + 1
    if number == 0:
        return [*carried, *_nothing(body, flag)]
    return [*carried, *(stacked(ctx, scan, 0) for scan in scans)]


def _nothing(body: _Body, condition: relax.Expr) -> list[relax.Expr]:
    """Scan outputs of a loop that does not run: of the shapes that it would have.

    Sizes that only its iterations could tell are 0.
    """
    ctx = body.ctx
    if len(body.graph.outputs) == len(body.initial) + 1:
        return []
    checks, measured, sizes = list(ctx.state.checks), list(ctx.state.measured), set(ctx.state.sizes)
    results = body.iteration(0, condition, body.initial)
    untold = {v for _, found in ctx.state.measured[len(measured) :] for v in found}
    untold |= ctx.state.sizes - sizes
    ctx.state.checks[:], ctx.state.measured[:] = checks, measured
    return [
        ctx.call("full", ctx.shape_expr([0, *shape]), value=0, dtype=ctx.dtype(x))
        for x in results[len(body.initial) + 1 :]
        for shape in [[0 if _vars(n) & untold else n for n in ctx.shape(x)]]
    ]


def _vars(size: Size) -> set[tirx.Var]:
    return set() if isinstance(size, int) else set(tirx.analysis.undefined_vars(size))


def _repeated(
    body: _Body, trips: relax.Expr | None, condition: relax.Expr | None
) -> list[relax.Expr]:
    """The results of a loop that the host program runs."""
    ctx = body.ctx
    if any(isinstance(x, TensorSequence) for x in body.initial):
        ctx.fail("a loop that carries a sequence needs a number of iterations known now")
    captures = Captures(ctx, captured(body.graph))
    flag = ctx.const(1, "int32") if condition is None else condition
    carried = [flag, *body.initial]
    types = [x.ty for x in carried]
    outer = list(dict.fromkeys([*captures.sizes, *fresh_sizes(types)]))
    fresh = {var: tirx.Var(var.name, "int64") for var in outer}
    label = f"loop_{ctx.node_index}"
    results = _function(body, captures, label, fresh, types)
    back = {inner: var for var, inner in fresh.items()}
    found = [with_sizes(ty, back) for ty in results]
    if str(found[0].dtype) != str(types[0].dtype) or any(d != 1 for d in found[0].shape.values):
        ctx.fail(f"the condition changes from {_text(ctx, types[0])} to {_text(ctx, found[0])}")
    for i, (ty, wanted) in enumerate(zip(found[1:], types[1:], strict=False)):
        if not _same_type(ctx, ty, wanted):
            change = f"from {_text(ctx, wanted)} to {_text(ctx, ty)}"
            ctx.fail(
                f"carried value {i} changes {change}, which is not supported where the number of "
                "iterations is known at run time only"
            )
    scans = found[len(carried) :]
    if any(type_sizes - set(outer) for type_sizes in map(_sizes, scans)):
        ctx.fail("scan outputs whose size depends on the iteration are not supported")
    if scans and trips is None:
        ctx.fail("scan outputs need a number of iterations")
    limit: Size = MOST_TRIPS
    if trips is not None:
        vector = ctx.call("to_sizes", trips, signed=True, lowest=0, node=ctx.node_index)
        (limit,) = measured(ctx, vector, 1, "trips")
    done = ctx.new_size("number of iterations")
    ctx.state.declare([done])
    stacked_types = [relax.TensorType([done, *ty.shape.values], str(ty.dtype)) for ty in scans]
    joined = ctx.emit(
        while_loop(
            flag,
            body.initial,
            captures.live,
            expr(limit),
            relax.ShapeExpr(outer),
            relax.TupleType([*types[1:], *stacked_types]),
            body=label,
        )
    )
    values = [ctx.emit(relax.TupleGetItem(joined, i)) for i in range(len(joined.ty.fields))]
    if scans:
        ctx.keep(values[-1])
    return values


def _same_type(ctx: OpContext, a: relax.TensorType, b: relax.TensorType) -> bool:
    sizes, others = list(a.shape.values), list(b.shape.values)
    alike = len(sizes) == len(others) and str(a.dtype) == str(b.dtype)
    return alike and all(map(ctx.same, sizes, others))


def _text(ctx: OpContext, ty: relax.TensorType) -> str:
    return f"{ty.dtype} {text(ctx, ty.shape.values)}"


def _sizes(ty: relax.TensorType) -> set[tirx.Var]:
    return set(relax.analysis.tir_vars_in_type(ty))


def _function(
    body: _Body,
    captures: Captures,
    label: str,
    fresh: dict[tirx.Var, tirx.Var],
    types: list[relax.TensorType],
) -> list[relax.TensorType]:
    """Translate the body to a function; returns the types of its results in its own sizes."""
    ctx, graph = body.ctx, body.graph
    number = relax.Var("number", relax.TensorType([], "int32"))
    state_vars = [relax.Var(f"carried_{i}", with_sizes(ty, fresh)) for i, ty in enumerate(types)]
    *taken, sizes = captures.params(fresh)
    state, scope = captures.inside(taken, fresh)
    values = dict(zip(graph.inputs, [number, *state_vars], strict=True))
    params = [number, *state_vars, *taken, sizes]
    return ctx.translator.function(label, params, graph, values, scope, state).result_types
