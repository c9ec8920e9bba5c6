"""Code in which no order is left to the compiler that built TVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.tirx import ForKind

import rten_aot
from rten_aot.codegen import objects
from rten_aot.codegen.order import fix_order
from rten_aot.targets.common.expr import children, is_call
from tests.memory.tables import one_of_each
from tests.support.cases import Mode, write_cases

ATOMS = (tirx.Var, tirx.IntImm, tirx.FloatImm, tvm.ir.StringImm)


def computed(expr: Expr) -> list[Expr]:
    """The operands of a node that take instructions."""
    if isinstance(expr, Call) and is_call(expr, "address_of"):
        return computed(expr.args[0])
    operands = children(expr)
    if is_call(expr, "if_then_else"):  # of which each is computed in a block of its own
        operands = operands[:1]
    assert not isinstance(expr, tirx.Let)
    return [o for o in operands if not is_atom(o)]


def is_atom(expr: Expr) -> bool:
    if isinstance(expr, tirx.Broadcast):
        return isinstance(expr.value, (tirx.IntImm, tirx.FloatImm))
    return isinstance(expr, ATOMS) or is_kept(expr)


def is_kept(expr: Expr) -> bool:
    """Whether LLVM has the value in a register: what is stored under a name, as a whole."""
    if isinstance(expr, tirx.Cast) and "bool" in str(expr.ty):
        return is_kept(expr.value)
    if not isinstance(expr, TensorLoad) or expr.source.name != "t":
        return False
    (place,) = expr.indices
    return isinstance(place, tirx.IntImm) or (
        isinstance(place, tirx.Ramp) and isinstance(place.base, tirx.IntImm)
    )


def expressions(statement: tirx.Stmt) -> Iterator[Expr]:
    """Every node of every expression."""
    found: list[Expr] = []

    def visit(node: Expr) -> Expr:
        found.append(node)
        return node

    tvm_ffi.structural_map(statement, (Expr, visit))
    yield from found


def loops(statement: tirx.Stmt) -> Iterator[tirx.For]:
    found: list[tirx.For] = []

    def visit(node: tirx.For) -> tirx.For:
        found.append(node)
        return node

    tvm_ffi.structural_map(statement, (tirx.For, visit))
    yield from found


@pytest.mark.parametrize("target", ["x86-64-v3", "cortex-a53"])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_at_most_one_operand_is_computed(
    mode: Mode, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[tirx.PrimFunc] = []
    lower = objects.lower

    def kept(functions: Mapping[str, tirx.PrimFunc], machine: tvm.target.Target) -> tvm.IRModule:
        module = lower(functions, machine)
        lowered.extend(module.functions.values())
        return module

    def in_this_process(
        kernels: Mapping[str, tirx.PrimFunc],
        host: Mapping[str, tirx.PrimFunc],
        machine: tvm.target.Target,
        folder: Path,
    ) -> list[Path]:
        return generate_all(kernels, host, machine, folder, workers=1)

    generate_all = objects.generate_all
    monkeypatch.setattr(objects, "lower", kept)
    monkeypatch.setattr("rten_aot.codegen.build.generate_all", in_this_process)
    write_cases(one_of_each(mode), mode, tmp_path / "model.rten")
    rten_aot.compile(tmp_path / "model.rten", tmp_path / "model.o", target=target, emit="obj")
    assert len(lowered) > 50
    for function in lowered:
        open_ones = [e for e in expressions(function.body) if len(computed(e)) > 1]
        assert not open_ones, open_ones[0]
        for loop in loops(function.body):
            if loop.kind == ForKind.PARALLEL:
                assert isinstance(loop.extent, tirx.Var), loop


def test_positions_that_have_names_keep_them() -> None:
    memory = tirx.decl_buffer([8], "float32", name="m")
    i, j = tirx.Var("i", "int64"), tirx.Var("j", "int64")
    stores = [
        tirx.BufferStore(memory, tirx.FloatImm("float32", x), [i * 4 + j * 2]) for x in (1, 2)
    ]
    function = tirx.PrimFunc([i, j], tirx.SeqStmt(stores)).with_attr("global_symbol", "main")
    name, *stores = fix_order(tvm.IRModule({"main": function}))["main"].body.seq
    assert isinstance(name, tirx.Bind)
    assert str(name.value) == "j * T.int64(2)"
    for store in stores:
        assert str(store.indices[0]) == "i * T.int64(4) + t"
        assert store.indices[0].b.same_as(name.var)
