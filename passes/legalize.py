"""Legalize: every ``rten.*`` operator becomes a call of the kernel that its TE function defines."""

from __future__ import annotations

import tvm
from tvm import relax

from rten_aot.dialect.registry import PREFIX, attrs_of, op_def
from rten_aot.passes.base import Rewriter


class Legalize(Rewriter):
    """``rten.relu(x)`` --> ``call_tir(relu, (x,))``; reshapes and ``rten.cond`` stay."""

    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Replace a call of an operator that has a TE function."""
        definition = op_def(value)
        if definition is None:
            return value
        attrs = {}
        if definition.pattern is not None:
            attrs["op_pattern"] = definition.pattern.value
        name = definition.name.removeprefix(PREFIX)
        return self.builder.call_te(
            definition.te,
            *value.args,
            primfunc_name_hint=name,
            primfunc_attrs=attrs or None,
            **attrs_of(value),
        )


def legalize(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with kernels in place of operators."""
    return Legalize().run(mod)
