"""Which weights become float16, and which stay as they are, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import rten_aot.dialect.conv
import rten_aot.dialect.indexing
import rten_aot.dialect.matmul
import rten_aot.dialect.winograd  # noqa: F401
from rten_aot.dialect.functions import bindings
from rten_aot.dialect.registry import call, op_def
from rten_aot.passes.halve_weights import halve_weights, rounded
from tests.passes.modules import is_same
from tests.targets.anchors import AVX2, Array, ints, tensor_type
from tests.targets.networks import module, run

GEOMETRY = {"strides": [1, 1], "dilations": [1, 1]}


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype="float32")


def halved(mod: tvm.IRModule) -> tuple[tvm.IRModule, list[str]]:
    notes: list[str] = []
    return halve_weights(mod, notes.append), notes


def constants(mod: tvm.IRModule) -> list[Any]:
    """The tensors that operators of ``main`` have as constants."""
    return [
        operand
        for _, value in bindings(mod["main"])
        if op_def(value) is not None
        for operand in value.args
        if isinstance(operand, tvm.ir.GenericConst)
    ]


def with_weight(w: Array) -> tvm.IRModule:
    """A product with a packed weight."""
    shape = [5, w.shape[1]]
    return module(
        [tensor_type(shape)],
        lambda b, x: b.emit(call("gemm_packed", x, relax.const(w), n=w.shape[0] * w.shape[2])),
    )


def gather(w: Array, axis: int) -> tvm.IRModule:
    indices = relax.const(np.array([1, -1, 0], np.int32))
    return module(
        [tensor_type([1])],
        lambda b, x: b.emit(call("gather", relax.const(w), indices, axis=axis, node=0)),
    )


MODULES: dict[str, tuple[Callable[[Array], tvm.IRModule], tuple[int, ...], tuple[int, ...]]] = {
    "gemm": (with_weight, (2, 40, 16), (5, 40)),
    "conv": (
        lambda w: module(
            [tensor_type([1, 6, 7, 20])],
            lambda b, x: b.emit(
                call("conv_packed", x, relax.const(w), ints(1, 1, 1, 1), out_channels=10,
                     **GEOMETRY)
            ),
        ),
        (2, 1, 3, 3, 10, 8),
        (1, 6, 7, 20),
    ),
    "winograd": (
        lambda w: module(
            [tensor_type([1, 6, 7, 9])],
            lambda b, x: b.emit(
                call("conv_winograd", x, relax.const(w), ints(1, 1, 1, 1), out_channels=13)
            ),
        ),
        (16, 1, 9, 16),
        (1, 6, 7, 9),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_results_are_those_of_rounded_weights(name: str) -> None:
    make, shape, given = MODULES[name]
    w, x = random(*shape), random(*given)
    mod, notes = halved(make(w))
    assert [str(c.ty.dtype) for c in constants(mod) if c.ty.dtype != "int32"] == ["float16"]
    assert notes == [f"weights in fp16: {w.nbytes // 2} bytes in place of {w.nbytes}"]
    (got,), (want,) = (
        run(m, AVX2, [x]) for m in (mod, make(w.astype(np.float16).astype(np.float32)))
    )
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.emit(call("gemm_packed", x, relax.const(random(1, 15, 64)), n=64)),
        lambda b, x: b.emit(
            call("gather", x, relax.const(np.zeros(3, np.int32)), axis=0, node=0)
        ),
        lambda b, x: b.emit(call("matmul", x, relax.const(random(15, 200)))),
    ],
    ids=["small", "not constant", "another operator"],
)  # fmt: skip
def test_others_stay(build: Any) -> None:
    mod = module([tensor_type([200, 15])], build)
    same, notes = halved(mod)
    assert is_same(same, mod)
    assert notes == ["weights in fp16: 0 bytes in place of 0"]


@pytest.mark.parametrize("axis", [0, 1])
def test_tables(axis: int) -> None:
    w = random(50, 33)
    w[7] *= 1e-6
    mod, notes = halved(gather(w, axis))
    table, _ = constants(mod)
    if axis == 0:  # rows stand alone, and one is too small
        assert str(table.ty.dtype) == "float32"
        why = "the numbers of 1 of its channels are too small for fp16"
        assert notes[0] == f"gather 50x33: weights stay fp32, because {why}"
        return
    np.testing.assert_array_equal(table.value.numpy(), w.astype(np.float16))
    ((_, value),) = list(bindings(mod["main"]))[:1]
    assert str(value.ty.dtype) == "float32"


def test_depthwise_kernels_stay() -> None:
    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        w = relax.const(random(3, 3, 256))
        return b.emit(call("depthwise", x, w, ints(1, 1, 1, 1), **GEOMETRY))

    mod = module([tensor_type([1, 4, 4, 256])], build)
    assert is_same(halved(mod)[0], mod)


def test_a_table_that_is_read_twice_stays_one() -> None:
    table = relax.const(random(50, 33))

    def build(b: relax.BlockBuilder, _: relax.Expr) -> relax.Expr:
        first, second = (
            b.emit(call("gather", table, relax.const(np.full(2, i, np.int32)), axis=0, node=i))
            for i in (0, 1)
        )
        return b.emit(call("add", first, second))

    mod, _ = halved(module([tensor_type([1])], build))
    first, second = (c for c in constants(mod) if str(c.ty.dtype) == "float16")
    assert first.same_as(second)


def changed(**places: float) -> Array:
    """A weight of 16 columns, with other numbers in some of them."""
    w = random(1, 100, 16)
    for column, value in places.items():
        w[0, :, int(column[1:])] = value
    return w


@pytest.mark.parametrize(
    ("w", "why"),
    [
        (changed(_3=70000.0), "7e+04 is too large for fp16"),
        (changed(_3=65520.0), "6.55e+04 is too large for fp16"),
        (changed(_3=np.inf), "some are no finite numbers"),
        (changed(_3=np.nan), "some are no finite numbers"),
        (random(1, 100, 16) * 1e-6, "the numbers of 16 of its channels are too small for fp16"),
        (random(1, 100, 16) * 1e-30, "the numbers of 16 of its channels are too small for fp16"),
        (
            random(1, 100, 16) * np.where(np.arange(16) == 2, 1e-5, 1e-2).astype(np.float32),
            "the numbers of 1 of its channels are too small for fp16",
        ),
    ],
)
def test_what_fp16_cannot_hold_stays(w: Array, why: str) -> None:
    mod = with_weight(w)
    same, notes = halved(mod)
    assert is_same(same, mod)
    assert notes == [
        f"gemm_packed 1x100x16: weights stay fp32, because {why}",
        "weights in fp16: 6400 bytes in place of 6400",
    ]


@pytest.mark.parametrize(
    "w",
    [
        changed(_3=65500.0),
        changed(_3=0.0),
        changed(_3=1e-7, _5=1e-12),  # nothing beside the others
        random(1, 100, 16) * 1e-2,
        np.zeros((1, 100, 16), np.float32),
    ],
    ids=["large", "zeros in a channel", "channels of no weight", "small", "zeros"],
)
def test_what_fp16_can_hold(w: Array) -> None:
    half, fault = rounded(w, (0, 2))
    assert fault is None
    np.testing.assert_array_equal(half, w.astype(np.float16))
