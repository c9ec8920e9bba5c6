"""Buffers of several axes as buffers of one, the form that the code generator takes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.sym import Analyzer

from rten_aot.targets.common.expr import identity


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def flatten(
    function: tirx.PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Accesses by one index, in row-major order; truth values become bytes.

    TVM's pass of this kind puts values in the places of their names and looks for iterations in
    every index, which takes most of the time of code generation where sizes are free. Here each
    index is simplified by itself; without that LLVM finds fewer addresses that differ by a
    constant.
    """
    analyzer = Analyzer()
    flat: dict[int, tirx.Var] = {}

    def buffer(old: tirx.Var) -> tirx.Var:
        key = identity(old)
        if key not in flat:
            flat[key] = _with_one_axis(old)
        return flat[key]

    def offset(old: tirx.Var, indices: Sequence[Expr]) -> list[Expr]:
        result: Expr = tirx.const(0, "int64")
        for extent, index in zip(old.ty.shape, indices, strict=True):
            result = result * extent + index
        return [analyzer.simplify(result)]

    def load(node: TensorLoad) -> Expr:
        value = tirx.BufferLoad(buffer(node.source), offset(node.source, node.indices))
        return tirx.Cast("bool", value) if _is_truth(node.source) else value

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        value = tirx.Cast("int8", node.value) if _is_truth(node.buffer) else node.value
        return tirx.BufferStore(buffer(node.buffer), value, offset(node.buffer, node.indices))

    def allocate(node: tirx.AllocBuffer) -> tirx.Stmt:
        return tirx.AllocBuffer(buffer(node.buffer), node.annotations)

    def declare(node: tirx.DeclBuffer) -> tirx.Stmt:
        return tirx.DeclBuffer(buffer(node.buffer), data=node.data)

    changes = [
        (TensorLoad, load),
        (tirx.BufferStore, store),
        (tirx.AllocBuffer, allocate),
        (tirx.DeclBuffer, declare),
    ]
    return tvm_ffi.structural_map(function, changes)


def _with_one_axis(old: tirx.Var) -> tirx.Var:
    assert not len(old.ty.strides), f"{old.name}: nothing here makes strides"
    count: Expr = tirx.const(1, "int64")
    for extent in old.ty.shape:
        count = count * extent
    dtype = "int8" if _is_truth(old) else str(old.ty.dtype)
    return tirx.decl_buffer([count], dtype, name=old.name, scope=str(old.ty.storage_scope))


def _is_truth(buffer: tirx.Var) -> bool:
    return str(buffer.ty.dtype) == "bool"
