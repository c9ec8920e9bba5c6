"""OrderSizes: kernels take the sizes that no shape tells in one order."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from rten_aot.dialect.functions import bindings
from rten_aot.passes.order_sizes import order_sizes
from rten_aot.passes.pipeline import lower
from tests.passes.modules import Body, assert_same, const, module, random, shape, tensor


def sizes_of(mod: tvm.IRModule) -> list[list[str]]:
    """The names of the sizes that each kernel takes, after what each call passes was checked."""
    found = []
    for _, value in bindings(mod["main"]):
        if isinstance(value, tvm.ir.Call) and value.op.name == "relax.call_tir":
            params = mod[value.args[0].name_hint].params
            names = [str(p.name) for p in params if not isinstance(p.ty, tirx.BufferType)]
            given = [f for f in value.args[1].fields if not isinstance(f.ty, relax.TensorType)]
            assert [str(f.name) for f in given] == names
            found.append(names)
    return found


def test_sizes_of_groups_come_by_name() -> None:
    """Of six sizes, the order of a set is hardly ever that of their names."""
    h, w, *more = (tirx.Var(name, "int64") for name in ("h", "w", "e", "c", "f", "d"))
    total = h * w + sum(more[1:], more[0])

    def build(b: Body, x: relax.Var, *_: relax.Var) -> relax.Var:
        y = b.call("pad", x, shape(0), shape(total), axes=[1], mode="constant")
        return b.call("relu", y)

    others = [tensor(f"t{i}", size) for i, size in enumerate((h, w, *more))]
    for fused in (False, True):
        found = sizes_of(lower(module(build, tensor("x", 4, 5), *others), fused=fused))
        assert ["c", "d", "e", "f", "h", "w"] in found
        assert all(names == sorted(names) for names in found)


def test_what_has_an_order_stays_as_it_is() -> None:
    def build(b: Body, x: relax.Var) -> relax.Var:
        return b.call("relu", b.call("matmul", x, const(random(8, 8))))

    mod = lower(module(build, tensor("x", tirx.Var("n", "int64"), 8)), fused=True)
    assert order_sizes(mod).same_as(mod)
    assert_same(order_sizes(mod), mod)
