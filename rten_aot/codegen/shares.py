"""Loops whose iterations are shared out to threads, in the form that the code generator takes."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import ForKind

TASK_COUNT = "rten_task_count"
"""Of the run-time library (native/runtime.h): how many tasks the launch has."""


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def share_out(
    function: tirx.PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Every task takes consecutive iterations, about as many as the others.

    So does TVM's code generator by itself, but with code whose order depends on the C++ compiler
    that built TVM (see ``fix_order``): here it has a loop over tasks, one for each thread.
    """
    return tvm_ffi.structural_map(function, (tirx.For, _shared_out))


def _shared_out(loop: tirx.For) -> tirx.Stmt:
    if loop.kind != ForKind.PARALLEL:
        return loop
    task, count, number = tirx.Var("task", "int32"), tirx.Var("count", "int32"), "int64"
    extent, step, begin, end = (tirx.Var(n, number) for n in ("extent", "step", "begin", "end"))
    index, this, tasks = tirx.Var("index", number), _long(task), _long(count)
    one = tirx.const(1, number)
    share = tirx.SeqStmt(
        [
            tirx.Bind(extent, loop.extent),
            tirx.Bind(step, tirx.Div(extent + tasks - one, tasks)),
            tirx.Bind(begin, tirx.Min(this * step, extent)),
            tirx.Bind(end, tirx.Min((this + one) * step, extent)),
            tirx.For(
                index,
                tirx.const(0, number),
                end - begin,
                ForKind.SERIAL,
                tirx.SeqStmt([tirx.Bind(loop.loop_var, begin + index), loop.body]),
            ),
        ]
    )
    tasks_of_thread = tirx.For(task, tirx.const(0, "int32"), count, ForKind.PARALLEL, share)
    launch = tirx.SeqStmt(
        [
            tirx.Bind(count, tirx.call_extern("int32", TASK_COUNT)),
            _pragma("pragma_parallel_stride_pattern", tasks_of_thread),
        ]
    )
    return _pragma("pragma_parallel_launch_point", launch)


def _long(value: Expr) -> Expr:
    return tirx.Cast("int64", value)


def _pragma(key: str, body: tirx.Stmt) -> tirx.Stmt:
    return tirx.AttrStmt(tirx.const(0, "int32"), key, tirx.const(1, "int32"), body)
