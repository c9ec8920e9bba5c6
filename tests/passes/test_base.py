"""The walk that passes are made of."""

from __future__ import annotations

import tvm
from tvm import relax

from rten_aot.dialect.functions import bindings
from rten_aot.dialect.registry import call, op_def
from rten_aot.passes.base import Rewriter, count_uses, relax_functions
from tests.passes.modules import Body, assert_same, const, module, ops, tensor


class SwapReluForAbs(Rewriter):
    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        definition = op_def(value)
        if definition is not None and definition.name == "rten.relu":
            return call("abs", value.args[0])
        return value


class DropNegations(Rewriter):
    def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        definition = op_def(value)
        return value.args[0] if definition and definition.name == "rten.negative" else value


def test_a_rewriter_that_changes_nothing_keeps_the_module() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        values, indices = b.emit(call("top_k", x, relax.ShapeExpr([2]), axis=0, largest=True)), x
        first = b.emit(relax.TupleGetItem(values, 0))
        return [b.call("add", first, const([1.0])), indices, const(3.0)]

    mod = module(build, tensor("x", 5))
    assert_same(Rewriter().run(mod), mod)


def test_later_bindings_see_what_replaced_the_earlier_ones() -> None:
    mod = module(lambda b, x: b.call("exp", b.call("relu", x)), tensor("x", 3))
    expected = module(lambda b, x: b.call("exp", b.call("abs", x)), tensor("x", 3))
    assert_same(SwapReluForAbs().run(mod), expected)


def test_a_binding_may_become_an_operand() -> None:
    mod = module(
        lambda b, x: [b.call("exp", b.call("negative", x)), b.call("negative", x)], tensor("x", 3)
    )
    expected = module(lambda b, x: [b.call("exp", x), x], tensor("x", 3))
    assert_same(DropNegations().run(mod), expected)


def test_types_follow_the_operands() -> None:
    """A changed operand type reaches the types of what depends on it."""

    class Widen(Rewriter):
        def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
            definition = op_def(value)
            if definition is not None and definition.name == "rten.relu":
                return call("concat", value.args[0], value.args[0], axis=0)
            return value

    mod = Widen().run(module(lambda b, x: b.call("exp", b.call("relu", x)), tensor("x", 3)))
    expected = module(lambda b, x: b.call("exp", b.call("concat", x, x, axis=0)), tensor("x", 3))
    assert_same(mod, expected)


def test_every_relax_function_is_rebuilt_and_others_are_kept() -> None:
    branch = module(lambda b, x: b.call("relu", x), tensor("x", 2))["main"]
    mod = module(lambda b, x: b.call("relu", x), tensor("x", 3), branch=branch)
    kernel = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(tvm.tirx.IntImm("int32", 0)))
    mod["kernel"] = kernel
    new = SwapReluForAbs().run(mod)
    assert ops(new) == ops(new, "branch") == ["abs"]
    assert new["kernel"].same_as(kernel)
    assert [v.name_hint for v, _ in relax_functions(new)] == ["branch", "main"]


def test_uses_are_counted_by_operand_and_result() -> None:
    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        y = b.call("add", x, x)
        pair = b.emit(call("top_k", y, relax.ShapeExpr([2]), axis=0, largest=True))
        return [b.emit(relax.TupleGetItem(pair, 0)), y]

    main = module(build, tensor("x", 5))["main"]
    uses = count_uses(main)
    x = main.params[0]
    y, pair, first = (var for var, _ in list(bindings(main))[:3])
    assert [uses[v] for v in (x, y, pair, first)] == [2, 2, 1, 1]


def test_used_once_speaks_of_the_old_function() -> None:
    seen: dict[str, bool] = {}

    class Look(Rewriter):
        def rewrite(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
            definition = op_def(value)
            if definition is not None:
                seen[definition.name] = self.used_once(value.args[0])
            return value

    def build(b: Body, x: relax.Var) -> list[relax.Expr]:
        y = b.call("abs", x)
        z = b.call("exp", y)
        return [b.call("log", z), z]

    Look().run(module(build, tensor("x", 5)))
    # A parameter has an owner besides.
    assert seen == {"rten.abs": False, "rten.exp": True, "rten.log": False}
