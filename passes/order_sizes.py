"""OrderSizes: kernels take sizes in the order of their names.

TVM keeps the sizes that no shape tells in sets, whose order changes from one process to the next;
the same model would not always give the same library.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        operands = ordered_operands(list(value.args[1].fields), order)
        args = [value.args[0], tvm.ir.Tuple(operands), *value.args[2:]]
        return tvm.ir.Call(value.op, args, value.attrs, value.ty_args)


def order_sizes(mod: tvm.IRModule) -> tvm.IRModule:
    """``f(x, n, m, y)`` --> ``f(x, m, n, y)`` for every kernel of the module."""
    functions = dict(mod.functions.items())
    orders: dict[str, list[int]] = {}
    for var, function in mod.functions.items():
        if not is_relax(function):
            order = size_order(function)
            if order != sorted(order):
                orders[var.name_hint] = order
                functions[var] = ordered_kernel(function, order)
    return OrderSizes(orders).run(tvm.IRModule(functions)) if orders else mod


def size_order(kernel: tirx.PrimFunc) -> list[int]:
    """Which of its sizes a kernel should take at each place that a size has."""
    names = [str(p.name) for p in kernel.params if _is_size(p)]
    return sorted(range(len(names)), key=names.__getitem__)


def ordered_kernel(kernel: tirx.PrimFunc, order: Sequence[int]) -> tirx.PrimFunc:
    """The kernel with its sizes in an order that ``size_order`` gave."""
    params = list(kernel.params)
    places = [i for i, p in enumerate(params) if _is_size(p)]
    sizes = [params[i] for i in places]
    for place, old in zip(places, order, strict=True):
        params[place] = sizes[old]
    return tirx.PrimFunc(params, kernel.body, kernel.ret_type, kernel.attrs)


def ordered_operands(operands: list[relax.Expr], order: Sequence[int]) -> list[relax.Expr]:
    """Operands for it, in which the sizes come last."""
    split = len(operands) - len(order)
    return [*operands[:split], *(operands[split + place] for place in order)]


def _is_size(param: tirx.Var) -> bool:
    return not isinstance(param.ty, tirx.BufferType)
