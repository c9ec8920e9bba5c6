"""Kernels that are loops already: only the block structure around them is removed."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from rten_aot.targets.common.context import SCRATCH
from rten_aot.targets.common.expr import Buffer


def schedule_opaque(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with the same loops, its intermediate buffers as parameters, and no blocks."""
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
    return lowered.with_attr(SCRATCH, len(scratch))
