"""If: https://onnx.ai/onnx/operators/onnx__If.html."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from rten_aot.dialect.control import cond as emit_cond
from rten_aot.dialect.functions import result_types
from rten_aot.format.graph import Graph
from rten_aot.importer.context import GraphState, OpContext
from rten_aot.importer.registry import op
from rten_aot.importer.translate import (
    CaptureScope,
    ImportedFunction,
    captured,
    fresh_sizes,
    replace_contents,
    with_sizes,
)


@op("If", limits="both branches must give results of the same type and rank")
def if_(ctx: OpContext, condition: relax.Expr) -> list[relax.Expr]:
    """A branch chosen at compile time where the condition is known, else at run time."""
    graphs = [ctx.attrs.graph("then_branch"), ctx.attrs.graph("else_branch")]
    known = ctx.contents(condition)
    if known is not None and known.size == 1 and not isinstance(known.flat[0], tvm.ir.Expr):
        graph = graphs[0] if known.flat[0] else graphs[1]
        return ctx.translator.inline(graph, {}, ctx.scope, ctx.state)
    if any(size != 1 for size in ctx.shape(condition)):
        ctx.shape_error("the condition must have one element")

    names = list(dict.fromkeys(n for g in graphs for n in captured(g)))
    outer = {n: value for n in names if (value := ctx.scope.lookup(n)) is not None}
    live = {n: v for n, v in outer.items() if not isinstance(v, tvm.ir.GenericConst)}
    sizes = _outer_sizes(ctx, list(live.values()))
    labels = [f"branch_{ctx.node_index}_{side}" for side in ("then", "else")]
    types = [
        _branch(ctx, label, graph, outer, sizes)
        for label, graph in zip(labels, graphs, strict=True)
    ]
    results = relax.TupleType(_joined(ctx, *types))
    call = emit_cond(
        condition,
        list(live.values()),
        relax.ShapeExpr(sizes),
        results,
        then=labels[0],
        otherwise=labels[1],
    )
    joined = ctx.emit(call)
    return [ctx.emit(relax.TupleGetItem(joined, i)) for i in range(len(results.fields))]


def _outer_sizes(ctx: OpContext, values: list[relax.Expr]) -> list[tirx.Var]:
    """The size variables that branches may speak of: those of the captured values."""
    found: dict[tirx.Var, None] = {}
    for value in values:
        found |= dict.fromkeys(relax.analysis.tir_vars_in_type(value.ty))
        content = ctx.contents(value)
        for element in [] if content is None else content.flat:
            if isinstance(element, tvm.ir.Expr):
                found |= dict.fromkeys(tirx.analysis.undefined_vars(element))
    return list(found)


def _branch(
    ctx: OpContext,
    label: str,
    graph: Graph,
    outer: dict[str, relax.Expr],
    sizes: list[tirx.Var],
) -> list[relax.TensorType]:
    """Translate a branch into a function of its own; returns its results' types in outer sizes."""
    fresh = {var: tirx.Var(var.name, "int64") for var in sizes}
    state = GraphState(relax.BlockBuilder())
    inside: dict[str, relax.Expr] = {}
    params: list[relax.Var] = []
    for name, value in outer.items():
        if isinstance(value, tvm.ir.GenericConst):
            inside[name] = value
            continue
        param = relax.Var(f"capture_{len(params)}", with_sizes(value.ty, fresh))
        content = ctx.contents(value)
        if content is not None:
            state.known[param] = replace_contents(content, fresh)
        params.append(param)
        inside[name] = param
    params.append(relax.Var("sizes", relax.ShapeType(list(fresh.values()))))
    translator = ctx.translator
    function = translator.function(label, params, graph, {}, CaptureScope(inside), state)
    translator.functions[label] = ImportedFunction(function, tuple(state.checks))
    back = {inner: var for var, inner in fresh.items()}
    types = result_types(function)
    own = fresh_sizes(types)
    back |= {var: new for var, new in own.items() if var not in back}
    return [with_sizes(ty, back) for ty in types]


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
            m if ctx.same(m, n) else tirx.Var(f"result_{ctx.node_index}_{i}_{axis}", "int64")
            for axis, (m, n) in enumerate(zip(a.shape.values, b.shape.values, strict=True))
        ]
        joined.append(relax.TensorType(sizes, str(a.dtype)))
    return joined


def _text(ty: relax.TensorType) -> str:
    return f"{ty.dtype} of rank {len(ty.shape.values)}"
