"""Fuse: elementwise kernels join the kernels that feed them (TVM's FuseOps and FuseTIR)."""

from __future__ import annotations

import tvm
from tvm import relax

from rten_aot.passes.group_origins import NameGroups, group_origins

MAX_OPERATORS = 16
"""Operators in one kernel: the scheduler's work grows faster than a chain's length."""


def fuse(mod: tvm.IRModule) -> tvm.IRModule:
    """Group kernels by their patterns and merge each group into one PrimFunc of several stages."""
    names = [v.name_hint for v, f in mod.functions.items() if isinstance(f, relax.Function)]
    with tvm.transform.PassContext(config={"relax.FuseOps.max_depth": MAX_OPERATORS}):
        mod = relax.transform.DeadCodeElimination(names)(mod)
        mod = relax.transform.AnnotateTIROpPattern()(mod)
        grouped = relax.transform.FuseOps()(mod)
        fused = relax.transform.FuseTIR()(grouped)
    return NameGroups(group_origins(mod, grouped)).run(fused)
