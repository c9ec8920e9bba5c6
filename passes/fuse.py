"""Fuse: elementwise kernels join the kernels that feed them (TVM's FuseOps and FuseTIR)."""

from __future__ import annotations

import tvm
from tvm import relax

MAX_OPERATORS = 16
"""Operators in one kernel: the scheduler's work grows faster than a chain's length."""


def fuse(mod: tvm.IRModule) -> tvm.IRModule:
    """Group kernels by their patterns and merge each group into one PrimFunc of several stages."""
    names = [v.name_hint for v, f in mod.functions.items() if isinstance(f, relax.Function)]
    passes = tvm.transform.Sequential(
        [
            relax.transform.DeadCodeElimination(names),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
    )
    with tvm.transform.PassContext(config={"relax.FuseOps.max_depth": MAX_OPERATORS}):
        return passes(mod)
