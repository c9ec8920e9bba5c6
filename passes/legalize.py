"""Legalize: every ``rten.*`` operator becomes a call of the kernel that its TE function defines."""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.relax.utils import gen_call_tir_inputs

from rten_aot.dialect.broadcast import same
from rten_aot.dialect.registry import PREFIX, OpDef, Pattern, attrs_of, on_gpu, op_def
from rten_aot.passes.base import Rewriter
from rten_aot.passes.order_sizes import ordered_kernel, ordered_operands, size_order


class Legalize(Rewriter):
    """``rten.relu(x)`` --> ``call_tir(relu, (x,))``; reshapes and ``rten.cond`` stay."""

    def __init__(self, *, for_gpu: bool = False) -> None:
        super().__init__()
        self._for_gpu = for_gpu

    def begin(self, function: relax.Function) -> None:
        """Learn which sizes the function is given."""
        self._given = {v for p in function.params for v in relax.analysis.tir_vars_in_type(p.ty)}

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Replace a call of an operator that has a TE function."""
        definition = op_def(value)
        if definition is None:
            return value
        if self._for_gpu:
            definition = on_gpu(definition)
        pattern = _pattern(definition, value, var)
        if any(self._is_computed(operand) for operand in value.args):
            # FuseOps cannot make sizes that the model computes operands of a group.
            pattern = Pattern.OPAQUE
        attrs = {"op_pattern": pattern.value} if pattern is not None else None
        kernel, operands, result = gen_call_tir_inputs(
            definition.te, *value.args, primfunc_attrs=attrs, **attrs_of(value)
        )
        # In one order before the builder looks whether it has an equal kernel.
        order = size_order(kernel)
        kernel, operands = ordered_kernel(kernel, order), ordered_operands(operands, order)
        name = self.builder.add_func(kernel, definition.name.removeprefix(PREFIX))
        return relax.call_tir(name, operands, result)

    def _is_computed(self, operand: relax.Expr) -> bool:
        if not isinstance(operand, relax.ShapeExpr):
            return False
        sizes = {v for d in operand.values for v in tirx.analysis.undefined_vars(d)}
        return not sizes <= self._given


def legalize(mod: tvm.IRModule, *, for_gpu: bool = False) -> tvm.IRModule:
    """The module with kernels in place of operators."""
    return Legalize(for_gpu=for_gpu).run(mod)


def _pattern(definition: OpDef, value: relax.Call, var: relax.Var) -> Pattern | None:
    """How fusion may treat the kernel.

    FuseOps lets no broadcast join a convolution. It may if only constants are stretched, such as a
    bias: the kernel then walks over the same elements as the convolution.
    """
    if definition.pattern is not Pattern.BROADCAST:
        return definition.pattern
    tensors = [a for a in value.args if isinstance(a.ty, relax.TensorType)]
    moving = [a for a in tensors if not isinstance(a, tvm.ir.GenericConst)]
    if moving and all(_same_shape(a.ty, var.ty) for a in moving):
        return Pattern.ELEMENTWISE
    return Pattern.BROADCAST


def _same_shape(a: relax.TensorType, b: relax.TensorType) -> bool:
    shape, other = list(a.shape.values), list(b.shape.values)
    return len(shape) == len(other) and all(map(same, shape, other))
