"""``rten.cond``, the run-time If, and tensors made of sizes."""

from __future__ import annotations

import functools
import json

import tvm
from tvm import relax, te, tirx
from tvm.ir import _ffi_api as ir_ffi

from rten_aot.dialect.registry import PREFIX, define

COND = PREFIX + "cond"


def _type_of_cond(call: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    return call.ty_args[0]


ir_ffi.RegisterOp(COND, "Calls one of two functions of the module.")
tvm.ir.register_op_attr(COND, "FInferType", _type_of_cond)
tvm.ir.register_op_attr(COND, "FPurity", True)


def cond(
    condition: relax.Expr,
    captures: list[relax.Expr],
    sizes: relax.ShapeExpr,
    results: relax.TupleType,
    *,
    then: str,
    otherwise: str,
) -> relax.Call:
    """A call of function ``then`` if the element of ``condition`` is not zero, else ``otherwise``.

    Both take ``captures`` and then ``sizes``. Size variables of ``results`` that are not defined
    before the call get their values from the branch that ran.
    """
    encoded = json.dumps({"then": then, "otherwise": otherwise}, sort_keys=True)
    attrs = tvm.ir.make_node("ir.DictAttrs", json=encoded)
    operands = [condition, *captures, sizes]
    return tvm.ir.Call(tvm.ir.Op.get(COND), operands, attrs, ty_args=[results])


LOOP = PREFIX + "loop"

ir_ffi.RegisterOp(LOOP, "Calls a function of the module again and again.")
tvm.ir.register_op_attr(LOOP, "FInferType", _type_of_cond)
tvm.ir.register_op_attr(LOOP, "FPurity", True)


def while_loop(
    condition: relax.Expr,
    initial: list[relax.Expr],
    captures: list[relax.Expr],
    limit: tirx.Expr,
    sizes: relax.ShapeExpr,
    results: relax.TupleType,
    *,
    body: str,
) -> relax.Call:
    """Calls of function ``body``, ``limit`` at most, while the element of a condition is not zero.

    The function takes the number of the iteration (int32), the condition, the carried values, the
    captures and the sizes; it gives the next condition and carried values, and scan outputs.
    ``results`` are the carried values at last and all scan outputs, stacked; the first size of
    those is a variable that gets its value from the loop.
    """
    encoded = json.dumps({"body": body, "carried": len(initial)}, sort_keys=True)
    attrs = tvm.ir.make_node("ir.DictAttrs", json=encoded)
    operands = [condition, *initial, *captures, relax.ShapeExpr([limit]), sizes]
    return tvm.ir.Call(tvm.ir.Op.get(LOOP), operands, attrs, ty_args=[results])


@define("sizes_to_tensor")
def sizes_to_tensor(sizes: list[tirx.Expr], *, dtype: str) -> te.Tensor:
    """Sizes as a vector; int32 wraps."""

    def element(i: tirx.Var) -> tirx.Expr:
        items = [tirx.Cast(dtype, size) for size in sizes]
        return functools.reduce(
            lambda rest, k: tirx.Select(tirx.EQ(i, tirx.const(k, "int64")), items[k], rest),
            range(len(items) - 1),
            items[-1],
        )

    return te.compute((tirx.const(len(sizes), "int64"),), element, name="sizes")
