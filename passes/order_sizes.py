"""OrderSizes: kernels take sizes in the order of their names.

TVM keeps the sizes that no shape tells in sets, whose order changes from one process to the next;
the same model would not always give the same library.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from rten_aot.passes.base import Rewriter, is_relax


class OrderSizes(Rewriter):
    """``call_tir(f, (x, n, m))`` --> ``call_tir(f, (x, m, n))``.

    ``orders`` gives, for every kernel that changes, which of its old sizes comes at each place.
    """

    def __init__(self, orders: dict[str, list[int]]) -> None:
        super().__init__()
        self._orders = orders

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Put the sizes among the operands in the kernel's order."""
        if not isinstance(value, tvm.ir.Call) or getattr(value.op, "name", "") != "relax.call_tir":
            return value
        order = self._orders.get(value.args[0].name_hint)
        if order is None:
            return value
        fields = list(value.args[1].fields)
        sizes = fields[-len(order) :]
        operands = [*fields[: -len(order)], *(sizes[place] for place in order)]
        args = [value.args[0], tvm.ir.Tuple(operands), *value.args[2:]]
        return tvm.ir.Call(value.op, args, value.attrs, value.ty_args)


def order_sizes(mod: tvm.IRModule) -> tvm.IRModule:
    """``f(x, n, m, y)`` --> ``f(x, m, n, y)`` for every kernel of the module."""
    functions = dict(mod.functions.items())
    orders: dict[str, list[int]] = {}
    for var, function in mod.functions.items():
        if not is_relax(function):
            names = [str(p.name) for p in function.params if _is_size(p)]
            order = sorted(range(len(names)), key=names.__getitem__)
            if order != list(range(len(names))):
                orders[var.name_hint] = order
                functions[var] = _ordered(function, order)
    return OrderSizes(orders).run(tvm.IRModule(functions)) if orders else mod


def _ordered(function: tirx.PrimFunc, order: list[int]) -> tirx.PrimFunc:
    params = list(function.params)
    places = [i for i, p in enumerate(params) if _is_size(p)]
    sizes = [params[i] for i in places]
    for place, old in zip(places, order, strict=True):
        params[place] = sizes[old]
    return tirx.PrimFunc(params, function.body, function.ret_type, function.attrs)


def _is_size(param: tirx.Var) -> bool:
    return not isinstance(param.ty, tirx.BufferType)
