"""Buffers of several axes as buffers of one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.ir import TensorLoad

import rten_aot
from rten_aot.codegen import objects
from rten_aot.codegen.flatten import flatten
from tests.support.cases import Case, convert


def flattened(statement: tirx.Stmt, *params: tirx.Var) -> tirx.Stmt:
    function = tirx.PrimFunc([*params], statement).with_attr("global_symbol", "main")
    return flatten(tvm.IRModule({"main": function}))["main"].body


def test_indices_become_one_that_is_simplified() -> None:
    n, i = tirx.Var("n", "int64"), tirx.Var("i", "int64")
    pointer = tirx.Var("p", tvm.ir.PointerType(tvm.ir.PrimType("float32")))
    buffer = tirx.decl_buffer([n, 3, 4], "float32", name="x")
    body = flattened(
        tirx.SeqStmt(
            [
                tirx.DeclBuffer(buffer, data=pointer),
                tirx.BufferStore(buffer, tirx.BufferLoad(buffer, [i, 0, 1]), [i - 1, 2, 3]),
            ]
        ),
        pointer,
        n,
        i,
    )
    declared, store = body.seq
    assert [str(e) for e in declared.buffer.ty.shape] == ["n * T.int64(3) * T.int64(4)"]
    assert store.buffer.same_as(declared.buffer)
    assert [str(e) for e in store.indices] == ["i * T.int64(12) - T.int64(1)"]
    assert isinstance(store.value, TensorLoad)
    assert [str(e) for e in store.value.indices] == ["i * T.int64(12) + T.int64(1)"]


def test_truth_values_become_bytes() -> None:
    buffer = tirx.decl_buffer([2, 2], "bool", name="x")
    body = flattened(
        tirx.SeqStmt(
            [
                tirx.AllocBuffer(buffer),
                tirx.BufferStore(buffer, tirx.Not(tirx.BufferLoad(buffer, [0, 1])), [1, 0]),
            ]
        )
    )
    allocated, store = body.seq
    assert str(allocated.buffer.ty.dtype) == "int8"
    assert [int(i) for i in store.indices] == [2]
    assert isinstance(store.value, tirx.Cast)
    assert str(store.value.ty) == "int8"
    assert isinstance(store.value.value.a, tirx.Cast)


@pytest.mark.parametrize("target", ["x86-64-v3", "cortex-a53", "riscv64v"])
def test_free_sizes_are_lowered_in_less_time_than_llvm_takes(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A depthwise convolution of 5x5 has the most accesses for its code."""
    taken = {"lower": 0.0, "all": 0.0}

    def timed(name: str, function: object) -> object:
        def call(*args: object) -> object:
            start = time.process_time()
            try:
                return function(*args)  # type: ignore[operator]
            finally:
                taken[name] += time.process_time() - start

        return call

    monkeypatch.setattr(objects, "lower", timed("lower", objects.lower))
    monkeypatch.setattr(objects, "generate", timed("all", objects.generate))
    inputs = [np.zeros((1, 64, 9, 9), "float32"), np.zeros((64, 1, 5, 5), "float32")]
    attributes: Mapping[str, object] = {"group": 64, "pads": [2] * 4, "strides": [2, 2]}
    case = Case("conv", "Conv", inputs, [], dict(attributes), constant=(1,))
    convert([case], "dynamic", tmp_path / "model.rten")
    rten_aot.compile(tmp_path / "model.rten", tmp_path / "model.o", target=target, emit="obj")
    assert 0 < taken["lower"] < taken["all"] / 2
