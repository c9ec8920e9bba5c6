"""NameSizes: computed sizes become variables of the kernels, and the calls pass what is missing."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from rten_aot.dialect.functions import bindings
from rten_aot.passes.fuse import fuse
from rten_aot.passes.legalize import legalize
from rten_aot.passes.name_sizes import name_sizes
from rten_aot.passes.pipeline import remove_unused
from tests.codegen.programs import kernel_calls, program_of
from tests.passes.modules import Body, is_same, module, ops, shape, tensor

N = tirx.Var("n", "int64")


def kernels(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    return {v.name_hint: f for v, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}


def shapes(function: tirx.PrimFunc) -> list[list[str]]:
    buffers = [p.ty for p in function.params if isinstance(p.ty, tirx.BufferType)]
    return [[str(d.value if isinstance(d, tirx.IntImm) else d) for d in b.shape] for b in buffers]


def operand_counts(mod: tvm.IRModule) -> list[int]:
    calls = [v for _, v in bindings(mod["main"]) if isinstance(v, tvm.ir.Call)]
    groups = [c.args[1] for c in calls if c.op.name == "relax.call_tir"]
    return [len(g.fields) if isinstance(g, tvm.ir.Tuple) else 1 for g in groups]


def doubled_then_cut(b: Body, x: relax.Var) -> relax.Var:
    """(n) -> (2n) -> its last n - 1 elements."""
    y = b.call("relu", b.call("concat", x, x, axis=0))
    return b.call("slice", y, shape(N + 1), shape(N - 1), axes=[0], steps=[1])


def test_plain_sizes_stay() -> None:
    for size in (N, 3):
        mod = legalize(module(lambda b, x: b.call("relu", x), tensor("x", size, 4)))
        assert is_same(name_sizes(mod), mod)


def test_equal_formulas_share_a_variable() -> None:
    mod = remove_unused(legalize(module(doubled_then_cut, tensor("x", N))))
    named = name_sizes(mod)
    relax.analysis.well_formed(named)
    relu = kernels(named)["relu"]
    assert shapes(relu) == [["size_0"], ["size_0"]]


def test_calls_pass_what_the_kernels_take() -> None:
    for fused in (False, True):
        legal = remove_unused(legalize(module(doubled_then_cut, tensor("x", N))))
        named = name_sizes(fuse(legal) if fused else legal)
        relax.analysis.well_formed(named)
        takes = [len(kernels(named)[name].params) for name in ops(named)]
        assert [count + 1 for count in operand_counts(named)] == takes


def test_sizes_that_no_shape_tells_are_parameters() -> None:
    cut = kernels(name_sizes(legalize(module(doubled_then_cut, tensor("x", N)))))["slice"]
    assert shapes(cut) == [["size_0"], ["size_1"]]
    assert [str(p.name) for p in cut.params][1] == "n"


def test_fused_kernels_have_plain_sizes_too() -> None:
    named = name_sizes(fuse(legalize(module(doubled_then_cut, tensor("x", N)))))
    for function in kernels(named).values():
        for size in [d for dims in shapes(function) for d in dims]:
            assert size == "n" or size.startswith("size_")


def test_the_host_program_computes_what_it_passes() -> None:
    program = program_of(module(doubled_then_cut, tensor("x", N)))
    cut = kernel_calls(program.steps)[-1]
    analyzer = tvm.sym.Analyzer()
    (n,) = program.sizes
    passed = set()
    for size in cut.sizes:
        for name, value in (("n", n), ("2n", n * 2), ("n - 1", n - 1)):
            if analyzer.can_prove_equal(size, value):
                passed.add(name)
    assert passed == {"n", "2n", "n - 1"}
