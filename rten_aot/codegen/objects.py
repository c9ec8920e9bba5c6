"""From scheduled TIR to object files, by TVM's LLVM code generator, in several processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import PointerType, PrimType, Var

from rten_aot.codegen.flatten import flatten
from rten_aot.codegen.order import fix_order
from rten_aot.codegen.program import kernel_sizes
from rten_aot.codegen.shares import share_out
from rten_aot.errors import InternalError


def raw_kernel(name: str, function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel as a plain C function.

    It takes a pointer for each buffer parameter, then its size variables (``kernel_sizes``).
    """
    pointers: list[tirx.Var] = []
    declarations: list[tirx.Stmt] = []
    for param in function.params:
        if isinstance(param.ty, tirx.BufferType):
            pointer = Var(f"{param.name}_p", PointerType(PrimType(str(param.ty.dtype)), "global"))
            pointers.append(pointer)
            declarations.append(tirx.DeclBuffer(param, data=pointer))
    body = tirx.SeqStmt([*declarations, function.body])
    raw = tirx.PrimFunc([*pointers, *kernel_sizes(function)], body)
    return _exported(name, raw)


def _exported(name: str, function: tirx.PrimFunc) -> tirx.PrimFunc:
    # calling_conv 1 keeps TVM's packed-function wrapper away: a plain C symbol remains.
    function = function.with_attr("global_symbol", name).with_attr("calling_conv", 1)
    return function.with_attr("tirx.noalias", True)


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _on_cpu(
    function: tirx.PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """State the device, which parallel loops need, and return 0, the one value TVM can return."""
    body = function.body
    for key, value in (("device_type", 1), ("device_id", 0)):
        body = tirx.AttrStmt(tirx.IntImm("int32", 0), key, tirx.IntImm("int32", value), body)
    body = tirx.SeqStmt([body, tirx.Return(tirx.IntImm("int32", 0))])
    return tirx.PrimFunc(function.params, body, PrimType("int32"), function.attrs)


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _plain_constants(
    function: tirx.PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """``reinterpret("int32", 0)``, which simplification may leave, --> ``0``.

    TVM's code generator takes a reinterpreted 0 for a null pointer.
    """

    def fold(call: tvm.ir.Call) -> tvm.ir.Expr:
        if getattr(call.op, "name", "") == "tirx.reinterpret":
            value = call.args[0]
            if isinstance(value, tirx.IntImm) and str(call.ty) != "handle" and value.value == 0:
                return tirx.const(0, str(call.ty))
        return call

    return tvm_ffi.structural_map(function, (tvm.ir.Call, fold))


def lower(functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target) -> tvm.IRModule:
    """Plain C functions in the form that the code generator takes."""
    mod = tvm.IRModule({tvm.ir.GlobalVar(n): _exported(n, f) for n, f in functions.items()})
    # TVM's own pipeline is for schedules made of blocks. Here loops are written as they are to be:
    # its many simplifications find nothing, and took twenty times as long as all of LLVM. Narrowing
    # indices to 32 bits would hide from the code generator that vector accesses are contiguous.
    passes = tvm.transform.Sequential(
        [
            flatten,
            # Before the target is known: one that has scalable vectors would get loops over them in
            # place of vectors of the length that the schedule chose.
            tirx.transform.VectorizeLoop(True),
            tirx.transform.BindTarget(tvm.target.Target(target, host=target)),
            tirx.transform.StorageRewrite(),
            tirx.transform.UnrollLoop(),
            s_tir.transform.RewriteUnsafeSelect(),
            tirx.transform.SplitHostDevice(),
            tirx.transform.MakePackedAPI(),
            _on_cpu,
            tirx.transform.LowerTVMBuiltin(),
            tirx.transform.LowerIntrin(),
            _plain_constants,
            share_out,
            fix_order,
        ]
    )
    with tvm.transform.PassContext(opt_level=3):
        return passes(mod)


def generate(
    functions: Mapping[str, tirx.PrimFunc],
    target: tvm.target.Target,
    path: Path,
    kind: str = "o",
) -> Path:
    """Write machine code (``kind`` "o"), assembly ("s") or LLVM IR ("ll") of plain C functions."""
    module = tvm.get_global_func("target.build.llvm")(lower(functions, target), target)
    if kind == "o":
        module.write_to_file(str(path), "o")
    elif kind == "s":
        path.write_text(module.inspect_source("asm"))
    else:
        path.write_text(_without_addresses(module.inspect_source("ll")))
    return path


def _without_addresses(text: str) -> str:
    """LLVM IR with numbered alias classes: TVM names them by the addresses of its objects."""
    numbers: dict[str, int] = {}
    return re.sub(
        r'(?<=!")0x[0-9a-f]+', lambda m: f"buffer{numbers.setdefault(m[0], len(numbers))}", text
    )


_GROUPS: list[tuple[dict[str, tirx.PrimFunc], Path]] = []
_TARGET: list[tvm.target.Target] = []


def _generate_group(index: int) -> str:
    functions, path = _GROUPS[index]
    generate(functions, _TARGET[0], path)
    return str(path)


def generate_all(
    kernels: Mapping[str, tirx.PrimFunc],
    host: Mapping[str, tirx.PrimFunc],
    target: tvm.target.Target,
    folder: Path,
    *,
    workers: int | None = None,
) -> list[Path]:
    """Object files of all functions; their number and content depend on the functions alone.

    Kernels never share a module with ``host``, which calls them: LLVM would inline them, and TVM
    tells it that accesses by different names never overlap. In one kernel that is so; from kernel
    to kernel buffers share memory.

    Worker processes are forked, so that the functions need not be serialised.
    """
    groups = [*_grouped(kernels), dict(host)]
    paths = [folder / f"code{i}.o" for i in range(len(groups))]
    workers = min(workers or len(os.sched_getaffinity(0)), len(groups))
    if workers <= 1 or len(kernels) <= GROUP_SIZE:
        for group, path in zip(groups, paths, strict=True):
            generate(group, target, path)
        return paths
    _GROUPS[:] = list(zip(groups, paths, strict=True))
    _TARGET[:] = [target]
    try:
        with warnings.catch_warnings():
            # Forking with threads is safe here: TVM's have not been started by the compiler.
            warnings.simplefilter("ignore", DeprecationWarning)
            with ProcessPoolExecutor(
                workers, mp_context=multiprocessing.get_context("fork")
            ) as pool:
                list(pool.map(_generate_group, range(len(groups))))
    except Exception as err:
        raise InternalError(f"code generation failed: {err}") from err
    finally:
        _GROUPS.clear()
        _TARGET.clear()
    return paths


GROUP_SIZE = 8
"""Functions in one object: small groups share work evenly among processes, large ones cost less."""


def _grouped(functions: Mapping[str, tirx.PrimFunc]) -> Sequence[dict[str, tirx.PrimFunc]]:
    items = list(functions.items())
    return [dict(items[i : i + GROUP_SIZE]) for i in range(0, len(items), GROUP_SIZE)]
