"""Runs one TE function of the dialect on NumPy arrays, unscheduled."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import te, tirx
from tvm.sym import Analyzer

from rten_aot.dialect import registry

Array = npt.NDArray[Any]

_FAIL = """
#include <stdint.h>
static int32_t seen[2];
int32_t rten_aot_fail(int32_t code, int32_t node, int64_t value) {
  (void)value;
  if (!seen[0]) { seen[0] = code; seen[1] = node; }
  return 0;
}
int32_t rten_aot_seen(int32_t which) {
  int32_t result = seen[which];
  seen[which] = 0;
  return result;
}
"""


@cache
def _failures() -> ctypes.CDLL:
    """A stand-in for the native runtime's rten_aot_fail, loaded where the JIT looks for it."""
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "fail.c", folder / "fail.so"
    source.write_text(_FAIL)
    compiler = shutil.which("cc")
    assert compiler is not None, "the tests of failing kernels need a C compiler"
    command = [compiler, "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def failure() -> tuple[int, int] | None:
    """Code and node of the first failure since the last call."""
    seen = _failures().rten_aot_seen
    code, node = seen(0), seen(1)
    return (code, node) if code else None


class Sizes(list[int]):
    """A ``relax.ShapeExpr`` operand: sizes known to the caller."""


def run(name: str, *operands: Array | Sizes, symbolic: bool = False, **attrs: Any) -> list[Array]:
    """The results of ``rten.<name>``; with ``symbolic`` every size is a run-time value."""
    function = registry._OPS[registry.PREFIX + name].te
    bound: dict[tirx.Var, int] = {}

    def size(value: int) -> tirx.Expr:
        if not symbolic:
            return tirx.const(value, "int64")
        var = tirx.Var(f"n{len(bound)}", "int64")
        bound[var] = value
        return var

    placeholders: list[te.Tensor] = []
    arguments: list[Any] = []
    for operand in operands:
        if isinstance(operand, Sizes):
            arguments.append([size(v) for v in operand])
        else:
            shape = [size(v) for v in operand.shape]
            arguments.append(
                te.placeholder(shape, operand.dtype.name, name=f"x{len(placeholders)}")
            )
            placeholders.append(arguments[-1])
    result = function(*arguments, **attrs)
    outputs = [result] if isinstance(result, te.Tensor) else list(result)
    scalars = list(bound)
    function_ = te.create_prim_func([*placeholders, *outputs, *scalars])
    values = [_evaluate(t.shape, bound) for t in outputs]
    arrays = [np.full(s, 77, str(t.dtype)) for s, t in zip(values, outputs, strict=True)]
    library = _compile(function_)
    inputs = [_tensor(o) for o in operands if not isinstance(o, Sizes)]
    results = [_tensor(a) for a in arrays]
    library["main"](*inputs, *results, *[bound[v] for v in scalars])
    return [r.numpy() for r in results]


def _tensor(array: Array) -> Any:
    return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape))


def _evaluate(shape: Sequence[tirx.Expr], bound: dict[tirx.Var, int]) -> list[int]:
    analyzer = Analyzer()
    for var, number in bound.items():
        analyzer.bind(var, tirx.const(number, "int64"))
    sizes = []
    for dim in shape:
        value = analyzer.simplify(dim)
        assert isinstance(value, tirx.IntImm), value
        sizes.append(int(value.value))
    return sizes


def _compile(function: tirx.PrimFunc) -> Any:
    _failures()
    module = tvm.compile(tvm.IRModule({"main": function}), target=tvm.target.Target("llvm"))
    return module
