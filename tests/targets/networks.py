"""Runs a module kernel by kernel: each is scheduled for a machine and called on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from rten_aot.passes.base import bindings, relax_functions, result_of
from rten_aot.passes.fuse import fuse
from rten_aot.passes.legalize import legalize
from rten_aot.targets.base import Machine
from tests.targets.anchors import Array, compiled


def run(mod: tvm.IRModule, machine: Machine, inputs: Sequence[Array]) -> list[Array]:
    """The results of ``main`` (rten operators, fixed sizes)."""
    lowered = fuse(legalize(mod))
    ((_, main),) = relax_functions(lowered)
    values: dict[Any, Any] = dict(zip(main.params, inputs, strict=True))

    def value(expr: relax.Expr) -> Any:
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        return values[expr]

    for var, bound in bindings(main):
        if isinstance(bound, tvm.ir.Call) and bound.op.name == "relax.call_tir":
            function = lowered[bound.args[0]]
            arguments = [value(a) for a in bound.args[1].fields]
            values[var] = compiled(function, machine)(*arguments)
        elif isinstance(bound, tvm.ir.Call) and bound.op.name == "relax.reshape":
            values[var] = value(bound.args[0]).reshape([int(d.value) for d in var.ty.shape.values])
        elif isinstance(bound, tvm.ir.Tuple):
            continue
        else:
            values[var] = value(bound)
    return [value(f) for f in result_of(main)]


def module(types: Sequence[relax.TensorType], build: Any) -> tvm.IRModule:
    """A module whose main returns what ``build(builder, *inputs)`` makes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", t) for i, t in enumerate(types)]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(tvm.ir.Tuple([build(builder, *inputs)]))
        builder.emit_func_output(output)
    return builder.get()


def operators(mod: tvm.IRModule) -> list[str]:
    """Names of the operators that ``main`` calls, in order."""
    ((_, main),) = relax_functions(mod)
    return [
        bound.op.name
        for _, bound in bindings(main)
        if isinstance(bound, tvm.ir.Call) and isinstance(bound.op, tvm.ir.Op)
    ]


def shape_of(expr: relax.Expr) -> list[int]:
    """The fixed shape of a tensor."""
    return [int(d.value) if isinstance(d, tirx.IntImm) else -1 for d in expr.ty.shape.values]


__all__ = ["module", "np", "operators", "run", "shape_of"]
