"""Rewriting of statements, and vector loops with temporaries in them."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx import ForKind, Stmt

from rten_aot.targets.common.expr import Buffer, Rewriter, element_bits, i64, substitute

TILE_BYTES = 1023
"""An allocation stays on the stack, and so in registers, only if its scope is ``global`` and it has
fewer than 1024 bytes; TVM turns any other one into a heap allocation per use."""


def rewrite_stmt(
    stmt: Stmt,
    on_expr: Callable[[Expr], Expr],
    on_stmt: Callable[[Stmt], Stmt | None] = lambda _: None,
) -> Stmt:
    """``stmt`` with every expression replaced by ``on_expr`` of it.

    ``on_stmt`` is asked first; what it returns takes the statement's place as it is.
    """

    def visit(node: Stmt) -> Stmt:
        replaced = on_stmt(node)
        return _rebuild(node, visit, on_expr) if replaced is None else replaced

    return visit(stmt)


def _rebuild(node: Stmt, visit: Callable[[Stmt], Stmt], expr: Callable[[Expr], Expr]) -> Stmt:
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([visit(s) for s in node.seq])
    if isinstance(node, tirx.For):
        return tirx.For(
            node.loop_var,
            expr(node.min),
            expr(node.extent),
            ForKind(node.kind),
            visit(node.body),
            node.thread_binding,
            node.annotations,
            node.step,
        )
    if isinstance(node, tirx.IfThenElse):
        otherwise = None if node.else_case is None else visit(node.else_case)
        return tirx.IfThenElse(expr(node.condition), visit(node.then_case), otherwise)
    if isinstance(node, tirx.BufferStore):
        return tirx.BufferStore(node.buffer, expr(node.value), [expr(i) for i in node.indices])
    if isinstance(node, tirx.Bind):
        return tirx.Bind(node.var, expr(node.value))
    if isinstance(node, tirx.Evaluate):
        return tirx.Evaluate(expr(node.value))
    if isinstance(node, tirx.AttrStmt):
        return tirx.AttrStmt(node.node, node.attr_key, expr(node.value), visit(node.body))
    if isinstance(node, tirx.While):
        return tirx.While(expr(node.condition), visit(node.body))
    return node


def temporary(dtype: str) -> Buffer:
    """A buffer for one value, to be stored and loaded at index 0."""
    return tirx.decl_buffer([i64(1)], dtype, name="t", scope="global")


def vectorised(lane: tirx.Var, lanes: int, body: Stmt) -> Stmt:
    """The loop over ``lane`` as vector operations.

    TVM gives a buffer that is allocated inside such a loop no room for all lanes. So allocations
    are taken out, with an element for each lane, and the loop has parts if they are too large.
    """
    wide: dict[Buffer, Buffer] = {}

    def gather(node: Stmt) -> Stmt | None:
        if isinstance(node, tirx.AllocBuffer):
            narrow = node.buffer
            wide[narrow] = tirx.decl_buffer(
                [i64(lanes)], str(narrow.ty.dtype), name=narrow.name, scope="global"
            )
            return tirx.Evaluate(tirx.IntImm("int32", 0))
        return None

    whole, body = body, rewrite_stmt(body, lambda e: e, gather)
    if any(lanes * element_bits(str(b.ty.dtype)) // 8 > TILE_BYTES for b in wide):
        half, second = lanes // 2, tirx.Var(lane.name, "int64")
        shifted = rewrite_stmt(whole, lambda e: substitute(e, {lane: second + i64(half)}))
        return tirx.SeqStmt(
            [vectorised(lane, half, whole), vectorised(second, lanes - half, shifted)]
        )
    if wide:

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, TensorLoad) and node.source in wide:
                return tirx.BufferLoad(wide[node.source], [lane])
            return None

        rewrite = Rewriter(replace)

        def on_stmt(node: Stmt) -> Stmt | None:
            if isinstance(node, tirx.BufferStore) and node.buffer in wide:
                return tirx.BufferStore(wide[node.buffer], rewrite(node.value), [lane])
            return None

        body = rewrite_stmt(body, rewrite, on_stmt)
    loop = tirx.For(lane, i64(0), i64(lanes), ForKind.VECTORIZED, without_noops(body))
    allocations = [tirx.AllocBuffer(b) for b in wide.values()]
    return tirx.SeqStmt([*allocations, loop]) if allocations else loop


def without_noops(stmt: Stmt) -> Stmt:
    """A sequence without the statements in it that do nothing."""
    if not isinstance(stmt, tirx.SeqStmt):
        return stmt
    kept = [s for s in stmt.seq if not is_noop(s)]
    if not kept:
        return stmt.seq[0]
    return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)


def is_noop(stmt: Stmt) -> bool:
    """Whether the statement does nothing."""
    return isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, tirx.IntImm)
