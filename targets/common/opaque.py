"""Kernels that are loops already: the block structure around them is removed.

Their formulas are written out so that common parts are computed once, as in generated loops.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.ir import Expr
from tvm.tirx import ForKind, Stmt

from rten_aot.targets.common.context import SCRATCH
from rten_aot.targets.common.expr import (
    Buffer,
    canonical,
    constant_int,
    is_vectorisable,
    walk,
)
from rten_aot.targets.common.loops import seq
from rten_aot.targets.common.sharing import share
from rten_aot.targets.common.stmts import rewrite_stmt, vectorised

_REDUCE = tirx.IterVar.CommReduce


def schedule_opaque(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with the same loops, its intermediate buffers as parameters, and no blocks."""
    func = _initialised(func)
    root = func.body
    scratch: list[Buffer] = []
    body = root
    if isinstance(root, s_tir.SBlockRealize) and not root.block.iter_vars:
        scratch = list(root.block.alloc_buffers)
        body = root.block.body
    result = tirx.PrimFunc([*func.params, *scratch], body, func.ret_type)
    for key, value in (func.attrs or {}).items():
        result = result.with_attr(key, value)
    module = tvm.IRModule({"main": result.with_attr("s_tir", True)})
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    lowered = tvm.transform.Sequential(passes)(module)["main"]
    written = lowered.with_body(write_out(lowered.body))
    return written.with_attr(SCRATCH, len(scratch))


def _initialised(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Reductions with their initial value stored before the loops over their terms.

    TVM's way, in the first iteration, leaves results of no terms as they were in memory.
    """
    schedule = s_tir.Schedule(tvm.IRModule({"main": func}))
    if not isinstance(func.body, s_tir.SBlockRealize) or func.body.block.iter_vars:
        return func
    root = schedule.get_sblock(func.body.block.name_hint)  # a kernel may be but one block
    for block in schedule.get_child_blocks(root):
        axes = schedule.get(block).iter_vars
        loops = schedule.get_loops(block)
        first = next(
            (loop for loop, a in zip(loops, axes, strict=False) if a.iter_type == _REDUCE), None
        )
        if first is not None and schedule.get(block).init is not None:
            schedule.decompose_reduction(block, first)
    result: tirx.PrimFunc = schedule.mod["main"]
    return result


def write_out(body: Stmt) -> Stmt:
    """Statements in which no formula has Let, and what Let named is computed once."""
    return rewrite_stmt(body, canonical, _write_out)


def _write_out(node: Stmt) -> Stmt | None:
    if isinstance(node, tirx.For) and node.kind == ForKind.VECTORIZED:
        lanes = constant_int(node.extent)
        if lanes is None or constant_int(node.min) != 0:
            return node
        return vectorised(node.loop_var, lanes, write_out(node.body))
    if isinstance(node, tirx.BufferStore) and _names_parts(node.value):
        binds, (value,) = share([canonical(node.value)])
        return seq(
            binds, tirx.BufferStore(node.buffer, value, [canonical(i) for i in node.indices])
        )
    return None


def _names_parts(value: Expr) -> bool:
    """Whether the formula has Let; one that TVM does not vectorise is left to it."""
    nodes = list(walk([value]))
    return any(isinstance(n, tirx.Let) for n in nodes) and all(
        is_vectorisable(n) for n in walk([canonical(value)])
    )
