"""The ``rten.*`` Relax operators: each is one TE function, which gives its type and its kernel."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

import tvm
from tvm import relax, te, tirx
from tvm.ir import _ffi_api as ir_ffi

from rten_aot.errors import InternalError

TeResult: TypeAlias = te.Tensor | list[te.Tensor]
TeFunction: TypeAlias = Callable[..., TeResult]
Annotations: TypeAlias = Mapping[str, int | str]
"""What the schedules of an operator's kernel are told, by name; results do not depend on it."""
UNANNOTATED: Annotations = {}
"""No annotations."""
AttrValue: TypeAlias = (
    int | float | bool | str | list[int] | list[float] | list[str] | Annotations | None
)


class Layout(Enum):
    """How an operator takes to activations that are stored channels-last."""

    FIXED = "fixed"
    """Knows one order of axes only."""
    ELEMENTWISE = "elementwise"
    """Works in any order of axes, if all operands that broadcast against each other share it."""
    AXES = "axes"
    """Works in any order; its attributes ``axis`` or ``axes`` (counted from 0) name axes."""
    SPATIAL = "spatial"
    """Has an attribute ``layout``: "NCHW" or "NHWC" (first operand and results; weights differ)."""


class Pattern(Enum):
    """How fusion may treat the kernel; the values are those of TVM's ``OpPatternKind``."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    ANCHOR = 4
    """A convolution or matrix product that elementwise successors join."""
    OPAQUE = 8


@dataclass(frozen=True)
class OpDef:
    """What the compiler knows of one ``rten.*`` operator."""

    name: str
    te: TeFunction
    layout: Layout
    pattern: Pattern | None
    """None leaves the choice to TVM's analysis of the kernel."""
    pure: bool = True
    """Whether results depend on operands and attributes alone; if not, they differ by run."""


_OPS: dict[str, OpDef] = {}
_ON_GPU: dict[str, OpDef] = {}
PREFIX = "rten."


def define(
    name: str,
    *,
    layout: Layout = Layout.FIXED,
    pattern: Pattern | None = None,
    pure: bool = True,
) -> Callable[[TeFunction], TeFunction]:
    """Register the decorated TE function as the Relax operator ``rten.<name>``.

    Positional parameters are te Tensors or, where the caller passes a ``relax.ShapeExpr``, lists of
    int64 PrimExprs; keyword-only parameters are the attributes.
    """

    def register(function: TeFunction) -> TeFunction:
        full = PREFIX + name
        if full in _OPS:
            first = _OPS[full].te.__module__
            raise InternalError(f"operator {full} is in {first} and in {function.__module__}")
        _OPS[full] = OpDef(full, function, layout, pattern, pure)
        ir_ffi.RegisterOp(full, inspect.getdoc(function) or "")
        tvm.ir.register_op_attr(full, "FInferType", functools.partial(_infer_type, full))
        tvm.ir.register_op_attr(full, "FPurity", True)
        return function

    return register


def define_on_gpu(name: str, *, pattern: Pattern) -> Callable[[TeFunction], TeFunction]:
    """Register the TE function that GPUs use for ``rten.<name>``: its results are the same."""

    def register(function: TeFunction) -> TeFunction:
        _ON_GPU[PREFIX + name] = replace(_OPS[PREFIX + name], te=function, pattern=pattern)
        return function

    return register


def on_gpu(definition: OpDef) -> OpDef:
    """The definition that GPUs use in place of this one, if there is another."""
    return _ON_GPU.get(definition.name, definition)


def call(name: str, *operands: relax.Expr, **attrs: AttrValue) -> relax.Call:
    """A call of ``rten.<name>``, not yet bound to a variable."""
    op = tvm.ir.Op.get(PREFIX + name)
    # JSON keeps Python's types apart (2.0 is not 2), which TVM's attribute dictionaries do not.
    encoded = json.dumps(attrs, sort_keys=True)
    return tvm.ir.Call(op, list(operands), tvm.ir.make_node("ir.DictAttrs", json=encoded))


def definition(name: str) -> OpDef:
    """The definition of ``rten.<name>``; ``KeyError`` if there is none."""
    return _OPS[PREFIX + name]


def op_def(expr: Any) -> OpDef | None:
    """The definition of the operator that ``expr`` calls; None if it calls no rten operator."""
    if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
        return _OPS.get(expr.op.name)
    return None


def attrs_of(expr: relax.Call) -> dict[str, Any]:
    """The attributes of a call made by ``call``."""
    attrs: dict[str, Any] = json.loads(str(expr.attrs["json"]))
    return attrs


def te_operand(expr: relax.Expr) -> te.Tensor | list[tirx.Expr] | relax.Expr:
    """The placeholder or list of sizes that stands for ``expr`` in a TE function."""
    if isinstance(expr, relax.ShapeExpr):
        return list(expr.values)
    ty = expr.ty
    if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        return te.placeholder(list(ty.shape.values), str(ty.dtype), name="operand")
    raise InternalError(f"operand of unknown shape: {ty}")


def _infer_type(name: str, call_: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    result = _OPS[name].te(*[te_operand(a) for a in call_.args], **attrs_of(call_))
    if isinstance(result, te.Tensor):
        return relax.TensorType(list(result.shape), str(result.dtype))
    return relax.TupleType([relax.TensorType(list(t.shape), str(t.dtype)) for t in result])
