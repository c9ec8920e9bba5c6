"""Schedules one kernel given as TE, compiles it, and runs it with guards around its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import te, tirx
from tvm.ir import Expr
from tvm.sym import Analyzer

from rten_aot.targets import Machine, get_machine, schedule
from rten_aot.targets.common.expr import substitute

Array = npt.NDArray[Any]
GUARD = 64
LEVELS = {name: get_machine(name) for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}
MACHINES = {name: m for name, m in LEVELS.items() if m.runs_here()} or {
    "native": get_machine("native")
}
AVX2 = MACHINES.get("x86-64-v3", next(iter(MACHINES.values())))


def i64(value: int | Expr) -> Expr:
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def shape(*extents: int | Expr) -> list[Expr]:
    return [i64(e) for e in extents]


def placeholder(*extents: int | Expr, dtype: str = "float32", name: str = "x") -> te.Tensor:
    return te.placeholder(shape(*extents), dtype, name=name)


def compute(extents: Sequence[int | Expr], body: Callable[..., Expr], name: str = "y") -> te.Tensor:
    return te.compute(shape(*extents), body, name=name)


def mapped(x: te.Tensor, function: Callable[[Expr], Expr], name: str = "y") -> te.Tensor:
    """``function`` of every element."""
    return te.compute(x.shape, lambda *i: function(x(*i)), name=name)


def axis(extent: int | Expr, name: str = "k") -> tirx.IterVar:
    return te.reduce_axis((i64(0), i64(extent)), name=name)


def f32(value: float) -> Expr:
    return tirx.const(value, "float32")


largest = te.comm_reducer(
    lambda a, b: tirx.Select(tirx.Or(a > b, tirx.isnan(a)), a, b),
    lambda dtype: tirx.const(float("-inf"), dtype),
    name="largest",
)
"""Maximum that keeps NaN, as the dialect writes it."""


def prim_func(inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> tirx.PrimFunc:
    return te.create_prim_func([*inputs, *outputs], index_dtype_override="int64")


@dataclass
class Compiled:
    """A kernel as machine code."""

    func: tirx.PrimFunc
    library: Any
    notes: list[str]
    outputs: int

    @property
    def text(self) -> str:
        return str(self.func.script())

    @property
    def assembly(self) -> str:
        text: str = self.library.mod.inspect_source("asm")
        return text

    @property
    def scratch(self) -> int:
        return int(self.func.attrs["rten.scratch"])

    def __call__(self, *arrays: Array, sizes: Mapping[tirx.Var, int] | None = None) -> list[Array]:
        params = list(self.func.params)[len(arrays) :]
        places = [_Guarded(p, sizes or {}) for p in params]
        inputs = [tvm.runtime.tensor(np.asarray(a, order="C")) for a in arrays]
        self.library["main"](*inputs, *(p.tensor for p in places))
        return [p.check() for p in places][: self.outputs]


class _Guarded:
    """Memory for one output or scratch buffer between two guards, full of a value that shows."""

    def __init__(self, param: tirx.Var, sizes: Mapping[tirx.Var, int]) -> None:
        extents = [
            int(Analyzer().simplify(substitute(e, {k: i64(v) for k, v in sizes.items()})))
            for e in param.ty.shape
        ]
        dtype = np.dtype(str(param.ty.dtype))
        count = int(np.prod(extents, dtype=np.int64))
        room = count + 2 * GUARD + 64
        self._fill = np.array(np.nan if dtype.kind == "f" else 77, dtype)
        base = np.full(room, self._fill, dtype)
        first = GUARD + (-(base.ctypes.data + GUARD * dtype.itemsize) % 64) // dtype.itemsize
        self._before, self._after = base[:first], base[first + count :]
        self._values = base[first : first + count].reshape(extents)
        # An empty array has no address that could be aligned.
        make = tvm.runtime.from_dlpack if count else tvm.runtime.tensor
        self.tensor = make(self._values)

    def check(self) -> Array:
        for guard in (self._before, self._after):
            expected = np.full_like(guard, self._fill)
            np.testing.assert_array_equal(guard, expected, "memory outside the buffer was written")
        result: Array = self._values.copy()
        return result


def build(
    inputs: Sequence[te.Tensor],
    outputs: te.Tensor | Sequence[te.Tensor],
    machine: Machine = AVX2,
) -> Compiled:
    """Schedules and compiles the kernel with these results."""
    results = [outputs] if isinstance(outputs, te.Tensor) else list(outputs)
    notes: list[str] = []
    func = schedule(prim_func(inputs, results), machine, notes.append)
    library = tvm.compile(func.with_attr("global_symbol", "main"), target=machine.tvm_target())
    return Compiled(func, library, notes, len(results))


def random(*extents: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(extents).astype(np.float32)


def normal_cdf(x: Array) -> npt.NDArray[np.float64]:
    """The normal distribution function, exact to float64 also in its lower tail."""
    return np.array([0.5 * math.erfc(-v * math.sqrt(0.5)) for v in x.flat]).reshape(x.shape)
