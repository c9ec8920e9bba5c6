"""Small Relax modules for tests of passes: building, comparing and running them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, tirx

import rten_aot.dialect
from rten_aot.dialect.functions import bindings
from rten_aot.dialect.registry import AttrValue, call, op_def
from rten_aot.passes.base import relax_functions
from rten_aot.passes.pipeline import lower

Array: TypeAlias = npt.NDArray[Any]
Results: TypeAlias = "relax.Expr | Sequence[relax.Expr]"

for _module in pkgutil.iter_modules(rten_aot.dialect.__path__):
    importlib.import_module(f"rten_aot.dialect.{_module.name}")


class Body:
    """Emits the bindings of a function."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind any expression."""
        return self._builder.emit(expr)

    def call(self, name: str, *operands: relax.Expr, **attrs: AttrValue) -> relax.Var:
        """Bind a call of ``rten.<name>``."""
        return self.emit(call(name, *operands, **attrs))

    def reshape(self, x: relax.Expr, *sizes: int | tirx.Expr) -> relax.Var:
        """Bind a reshape."""
        return self.emit(relax.op.reshape(x, shape(*sizes)))

    def conv(
        self,
        x: relax.Expr,
        w: relax.Expr,
        *,
        pads: Sequence[int] = (0, 0, 0, 0),
        groups: int = 1,
        **attrs: AttrValue,
    ) -> relax.Var:
        """Bind a convolution of stride 1."""
        full: dict[str, AttrValue] = {"strides": [1, 1], "dilations": [1, 1], "groups": groups}
        return self.call("conv", x, w, shape(*pads), **(full | attrs))


def module(build: Callable[..., Results], *params: relax.Var, **others: relax.Function) -> Any:
    """A module whose ``main`` takes ``params`` and returns what ``build(body, *params)`` does."""
    builder = relax.BlockBuilder(
        tvm.IRModule({tvm.ir.GlobalVar(name): f for name, f in others.items()})
    )
    with builder.function("main", list(params)):
        with builder.dataflow():
            results = build(Body(builder), *params)
            fields = list(results) if isinstance(results, (list, tuple)) else [results]
            output = builder.emit_output(tvm.ir.Tuple(fields))
        builder.emit_func_output(output)
    return builder.get()


def tensor(name: str, *sizes: int | tirx.Expr, dtype: str = "float32") -> relax.Var:
    """A parameter."""
    return relax.Var(name, relax.TensorType(list(shape(*sizes).values), dtype))


def shape(*sizes: int | tirx.Expr) -> relax.ShapeExpr:
    """An operand made of sizes."""
    return relax.ShapeExpr([tirx.const(s, "int64") if isinstance(s, int) else s for s in sizes])


def const(data: Any, dtype: str = "float32") -> relax.Constant:
    """A constant operand."""
    return relax.const(np.asarray(data, dtype))


def random(*sizes: int, seed: int = 0) -> Array:
    """Reproducible float32 values."""
    return np.random.default_rng(seed).standard_normal(sizes, np.float32)


def ops(mod: tvm.IRModule, name: str = "main") -> list[str]:
    """What a function calls, in order: names of operators, without ``rten.`` and ``relax.``."""
    function = dict((v.name_hint, f) for v, f in relax_functions(mod))[name]
    names = []
    for _, value in bindings(function):
        if isinstance(value, tvm.ir.Call):
            if value.op.name == "relax.call_tir":
                names.append(value.args[0].name_hint)
            else:
                names.append(value.op.name.removeprefix("rten.").removeprefix("relax."))
    return names


def calls(mod: tvm.IRModule, name: str) -> list[relax.Call]:
    """The calls of ``rten.<name>`` in ``main``."""
    main = mod["main"]
    found = [(op_def(value), value) for _, value in bindings(main)]
    return [
        value for definition, value in found if definition and definition.name == f"rten.{name}"
    ]


def assert_same(got: tvm.IRModule, expected: tvm.IRModule) -> None:
    """Fail unless both modules are structurally equal, constants included."""
    relax.analysis.well_formed(got)
    tvm.ir.assert_structural_equal(got, expected, map_free_vars=True)


def is_same(a: tvm.IRModule, b: tvm.IRModule) -> bool:
    """Whether both modules are structurally equal, constants included."""
    return bool(tvm_ffi.structural_equal(a, b, map_free_vars=True))


def run(mod: tvm.IRModule, *inputs: Array, fused: bool = False) -> list[Array]:
    """The results of ``main``, by TVM's own virtual machine."""
    executable = tvm.compile(lower(mod, fused=fused), target=tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    results = machine["main"](*[tvm.runtime.tensor(x) for x in inputs])
    return [r.numpy() for r in results]


def assert_equivalent(
    got: tvm.IRModule, source: tvm.IRModule, *inputs: Array, tolerance: float = 0.0
) -> None:
    """Fail unless both modules compute the same from ``inputs``."""
    relax.analysis.well_formed(got)
    for a, b in zip(run(got, *inputs), run(source, *inputs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
