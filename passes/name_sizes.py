"""NameSizes: a kernel gets every computed size of its operands as one variable.

Sizes deep inside a model are long formulas in the sizes of the inputs. Where they came up in a
kernel's index arithmetic, every loop would compute them again.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax, tirx

from rten_aot.passes.base import Rewriter, is_relax

_OPERATIONS = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.Min,
    tirx.Max,
    tirx.Select,
)


@dataclass(frozen=True)
class _Renamed:
    """A kernel in named sizes, and the variables that its operands' shapes no longer give it."""

    function: tirx.PrimFunc
    missing: tuple[tirx.Var, ...]


class PassSizes(Rewriter):
    """``call_tir(f, (x,))`` --> ``call_tir(f, (x, n))`` for a kernel that misses ``n``."""

    def __init__(self, renamed: dict[str, _Renamed]) -> None:
        super().__init__()
        self._renamed = renamed

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Add the missing sizes to the operands."""
        if not isinstance(value, tvm.ir.Call) or getattr(value.op, "name", "") != "relax.call_tir":
            return value
        renamed = self._renamed.get(value.args[0].name_hint)
        if renamed is None or not renamed.missing:
            return value
        operands = value.args[1]
        fields = list(operands.fields) if isinstance(operands, tvm.ir.Tuple) else [operands]
        args = [value.args[0], tvm.ir.Tuple([*fields, *renamed.missing]), *value.args[2:]]
        return tvm.ir.Call(value.op, args, value.attrs, value.ty_args)


def name_sizes(mod: tvm.IRModule) -> tvm.IRModule:
    """``f(x: [n, (m + 1) // 2])`` --> ``f(x: [n, k])`` for every kernel of the module."""
    counts = _result_counts(mod)
    renamed: dict[str, _Renamed] = {}
    functions = dict(mod.functions.items())
    for var, function in mod.functions.items():
        if not is_relax(function):
            result = _rename(function, counts.get(var.name_hint, 1))
            if result is not None:
                renamed[var.name_hint] = result
                functions[var] = result.function
    if not renamed:
        return mod
    return PassSizes(renamed).run(tvm.IRModule(functions))


def _result_counts(mod: tvm.IRModule) -> dict[str, int]:
    """How many results each kernel has."""
    counts: dict[str, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == "relax.call_tir":
            ty = expr.ty
            several = isinstance(ty, relax.TupleType)
            counts[expr.args[0].name_hint] = len(ty.fields) if several else 1

    for function in mod.functions.values():
        if is_relax(function):
            relax.analysis.post_order_visit(function, visit)
    return counts


def _rename(function: tirx.PrimFunc, results: int) -> _Renamed | None:
    """The function in named sizes; None if all its operands' sizes are plain already."""
    buffers = [p for p in function.params if isinstance(p.ty, tirx.BufferType)]
    dims = [d for b in buffers for d in b.ty.shape]
    computed = [d for d in dims if isinstance(d, _OPERATIONS)]
    if not computed:
        return None
    analyzer = tvm.sym.Analyzer()
    names: dict[tvm_ffi.StructuralKey, tirx.Var] = {}
    for dim in computed:
        key = _key(analyzer.simplify(dim))
        names.setdefault(key, tirx.Var(f"size_{len(names)}", "int64"))
    sizes = {v for d in computed for v in tirx.analysis.undefined_vars(d)}
    known: dict[tvm_ffi.StructuralKey, tvm.ir.Expr] = {}

    def rename(node: tvm.ir.Expr) -> tvm.ir.Expr:
        key = _key(node)
        if key not in known:
            known[key] = node
            if all(v in sizes for v in tirx.analysis.undefined_vars(node)):
                simple = _key(analyzer.simplify(node))
                known[key] = names.get(simple, node)
        return known[key]

    renamed = tvm_ffi.structural_map(function, (_OPERATIONS, rename), order="pre")
    plain = {d for p in renamed.params for d in _plain_sizes(p)}
    left = [v for v in sorted(sizes, key=lambda v: str(v.name)) if v not in plain]
    missing = tuple(v for v in left if v in set(tirx.analysis.undefined_vars(renamed.body)))
    params = list(renamed.params)
    split = len(params) - results
    full = tirx.PrimFunc(
        [*params[:split], *missing, *params[split:]],
        renamed.body,
        renamed.ret_type,
        renamed.attrs,
    )
    return _Renamed(full, missing)


def _key(expr: tvm.ir.Expr) -> tvm_ffi.StructuralKey:
    """Equal for expressions of equal structure."""
    return tvm_ffi.StructuralKey(expr)  # type: ignore[call-arg]  # its stub lists a field


def _plain_sizes(param: tirx.Var) -> list[tirx.Var]:
    if not isinstance(param.ty, tirx.BufferType):
        return [param]
    return [d for d in param.ty.shape if isinstance(d, tvm.ir.Var)]
