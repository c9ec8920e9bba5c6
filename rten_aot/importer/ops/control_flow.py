"""If: https://onnx.ai/onnx/operators/onnx__If.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm import relax, tirx

from rten_aot.dialect import registry as dialect
from rten_aot.dialect.control import cond as emit_cond
from rten_aot.dialect.functions import building
from rten_aot.errors import ShapeError
from rten_aot.format.graph import Graph
from rten_aot.importer.context import Check, GraphState, OpContext
from rten_aot.importer.registry import op
from rten_aot.importer.sequences import TensorSequence
from rten_aot.importer.sizes import one_element
from rten_aot.importer.translate import (
    CaptureScope,
    ImportedFunction,
    captured,
    fresh_sizes,
    replace_contents,
    with_sizes,
)


@op(
    "If",
    data_dependent=True,
    limits="branches whose results differ in rank need a condition on sizes, which must then be "
    "true when the model runs",
)
def if_(ctx: OpContext, condition: relax.Expr) -> list[relax.Expr]:
    """A branch chosen at compile time where the condition is known, else at run time.

    A branch that is impossible for the shapes at hand fails when it is taken. Where the results
    differ in rank and the condition is on sizes (as in what exporters make of a squeeze), it is
    taken to be true, which is checked at run time.
    """
    graphs = [ctx.attrs.graph("then_branch"), ctx.attrs.graph("else_branch")]
    one_element(ctx, condition, "the condition")
    known = ctx.contents(condition)
    truth = None if known is None else known.flat[0]
    if truth is not None and not isinstance(truth, tvm.ir.Expr):
        graph = graphs[0] if truth else graphs[1]
        return ctx.translator.inline(graph, {}, ctx.scope, ctx.state)

    captures = Captures(ctx, list(dict.fromkeys(n for g in graphs for n in captured(g))))
    labels = [f"branch_{ctx.node_index}_{side}" for side in ("then", "else")]
    types = _branches(ctx, captures, labels, graphs)
    if truth is not None and _ranks(types[0]) != _ranks(types[1]):
        for label in labels:
            del ctx.translator.functions[label]
        ctx.require(
            tirx.NE(truth, tirx.const(0, "int64")),
            "the branches give results of different rank, and only the first one was compiled",
        )
        return ctx.translator.inline(graphs[0], {}, ctx.scope, ctx.state)
    results = relax.TupleType(_joined(ctx, *types))
    call = emit_cond(
        condition,
        captures.live,
        relax.ShapeExpr(captures.sizes),
        results,
        then=labels[0],
        otherwise=labels[1],
    )
    joined = ctx.emit(call)
    values = [ctx.emit(relax.TupleGetItem(joined, i)) for i in range(len(results.fields))]
    outer = set(captures.sizes)
    fresh = [v for v in relax.analysis.tir_vars_in_type(results) if v not in outer]
    if fresh:
        ctx.state.declare(fresh)
        ctx.keep(values[0])
    return values


@dataclass(frozen=True)
class Captures:
    """What the branches take from their surroundings."""

    ctx: OpContext
    names: list[str]

    @cached_property
    def outer(self) -> dict[str, relax.Expr]:
        """All of them by name."""
        found = {name: self.ctx.scope.lookup(name) for name in self.names}
        for name, value in found.items():
            if isinstance(value, TensorSequence):
                self.ctx.fail(f'"{name}" is a sequence of tensors, which cannot be captured here')
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def live(self) -> list[relax.Expr]:
        """The values among them; the rest is constants."""
        return [v for v in self.outer.values() if not isinstance(v, tvm.ir.GenericConst)]

    @cached_property
    def sizes(self) -> list[tirx.Var]:
        """The size variables that branches may speak of."""
        found: dict[tirx.Var, None] = {}
        for value in self.live:
            found |= dict.fromkeys(relax.analysis.tir_vars_in_type(value.ty))
            content = self.ctx.contents(value)
            for element in [] if content is None else content.flat:
                if isinstance(element, tvm.ir.Expr):
                    found |= dict.fromkeys(tirx.analysis.undefined_vars(element))
        return list(found)

    def params(self, fresh: dict[tirx.Var, tirx.Var]) -> list[relax.Var]:
        """Parameters of a branch function, in its own size variables."""
        values = [
            relax.Var(f"capture_{i}", with_sizes(v.ty, fresh)) for i, v in enumerate(self.live)
        ]
        return [*values, relax.Var("sizes", relax.ShapeType(list(fresh.values())))]

    def inside(
        self, params: Sequence[relax.Var], fresh: dict[tirx.Var, tirx.Var]
    ) -> tuple[GraphState, CaptureScope]:
        """What a function with ``params`` starts from: all that is known of the captures."""
        state = GraphState(relax.BlockBuilder())
        # What is measured may be negative, such as pads; inside as little as outside.
        state.declare(own for var, own in fresh.items() if var in self.ctx.state.sizes)
        moved = dict(zip(self.live, params, strict=False))
        for value, param in moved.items():
            content = self.ctx.contents(value)
            if content is not None:
                state.known[param] = replace_contents(content, fresh)
        scope = {name: moved.get(value, value) for name, value in self.outer.items()}
        return state, CaptureScope(scope)


def _branches(
    ctx: OpContext, captures: Captures, labels: Sequence[str], graphs: Sequence[Graph]
) -> list[list[relax.TensorType]]:
    """Translate both branches; returns the types of their results in outer sizes."""
    types: list[list[relax.TensorType] | None] = []
    errors: list[tuple[ShapeError, int]] = []
    for label, graph in zip(labels, graphs, strict=True):
        try:
            types.append(_branch(ctx, captures, label, graph))
        except ShapeError as err:
            types.append(None)
            errors.append((err, len(ctx.translator.nodes) - 1))
    possible = [t for t in types if t is not None]
    if not possible:
        raise errors[0][0]
    if errors:
        _impossible(ctx, captures, labels[types.index(None)], possible[0], *errors[0])
    return [possible[0] if t is None else t for t in types]


def _branch(ctx: OpContext, captures: Captures, label: str, graph: Graph) -> list[relax.TensorType]:
    fresh = {var: tirx.Var(var.name, "int64") for var in captures.sizes}
    params = captures.params(fresh)
    state, scope = captures.inside(params, fresh)
    types = ctx.translator.function(label, params, graph, {}, scope, state).result_types
    back = {inner: var for var, inner in fresh.items()}
    back |= {var: new for var, new in fresh_sizes(types).items() if var not in back}
    return [with_sizes(ty, back) for ty in types]


def _impossible(
    ctx: OpContext,
    captures: Captures,
    label: str,
    types: list[relax.TensorType],
    error: ShapeError,
    node: int,
) -> None:
    """Stand in for a branch that no run with these shapes can take: it fails, and gives zeros."""
    fresh = {var: tirx.Var(var.name, "int64") for var in captures.sizes}
    builder = relax.BlockBuilder()
    with building(builder, label, captures.params(fresh)):
        with builder.dataflow():
            results = []
            for ty in types:
                sizes = with_sizes(ty, fresh).shape
                results.append(
                    builder.emit(dialect.call("full", sizes, value=0, dtype=str(ty.dtype)))
                )
            output = builder.emit_output(tvm.ir.Tuple(results))
        builder.emit_func_output(output)
    never = Check(tirx.const(0, "bool"), node, str(error))
    ctx.translator.functions[label] = ImportedFunction(builder.get()[label], (never,))


def _joined(
    ctx: OpContext, then: list[relax.TensorType], otherwise: list[relax.TensorType]
) -> list[relax.TensorType]:
    """The results' types: a size on which the branches disagree is known at run time only."""
    if len(then) != len(otherwise) or len(then) < len(ctx.node.outputs):
        ctx.shape_error(f"the branches give {len(then)} and {len(otherwise)} results")
    joined = []
    for i, (a, b) in enumerate(zip(then, otherwise, strict=True)):
        if str(a.dtype) != str(b.dtype) or len(a.shape.values) != len(b.shape.values):
            ctx.fail(f"result {i} is {_text(a)} in one branch and {_text(b)} in the other")
        sizes = [
            m if ctx.same(m, n) else ctx.new_size(f"size {axis} of result {i}")
            for axis, (m, n) in enumerate(zip(a.shape.values, b.shape.values, strict=True))
        ]
        joined.append(relax.TensorType(sizes, str(a.dtype)))
    return joined


def _ranks(types: Sequence[relax.TensorType]) -> list[int]:
    return [len(ty.shape.values) for ty in types]


def _text(ty: relax.TensorType) -> str:
    return f"{ty.dtype} of rank {len(ty.shape.values)}"
