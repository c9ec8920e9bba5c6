"""The work of kernels: operations and bytes, counted by hand beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax, tirx
from tvm.sym import Analyzer

from rten_aot.passes.channels_last import channels_last
from rten_aot.passes.pack_weights import pack_weights
from rten_aot.passes.pipeline import lower
from rten_aot.targets import Work, work
from rten_aot.targets.common.packing import columns
from tests.passes.modules import Body, const, module, random, shape, tensor
from tests.targets.anchors import AVX2

Build = Callable[..., "relax.Expr | list[relax.Expr]"]


def works(build: Build, *params: relax.Var, packed: bool = False) -> list[Work]:
    """The work of the fused kernels, in no order."""
    mod = module(build, *params)
    if packed:
        mod = pack_weights(channels_last(mod, lambda _: None), AVX2, lambda _: None)
    mod = lower(mod, fused=True)
    return [work(f) for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]


def numbers(build: Build, *params: relax.Var, packed: bool = False) -> tuple[int, int]:
    """Operations and bytes of all kernels together."""
    found = works(build, *params, packed=packed)
    return sum(int(w.flops) for w in found), sum(int(w.bytes) for w in found)


def test_matrix_product() -> None:
    flops, moved = numbers(
        lambda b, x, y: b.call("matmul", x, y), tensor("x", 3, 5, 7), tensor("y", 3, 7, 11)
    )
    assert flops == 2 * 3 * 5 * 7 * 11
    assert moved == 4 * 3 * (5 * 7 + 7 * 11 + 5 * 11)


def test_padding_of_packed_weights_is_no_work() -> None:
    assert 37 % columns(AVX2, 37, wide=True)
    flops, moved = numbers(
        lambda b, x: b.call("relu", b.call("matmul", x, const(random(7, 37)))),
        tensor("x", 5, 7),
        packed=True,
    )
    assert flops == 2 * 5 * 7 * 37
    assert moved == 4 * (5 * 7 + 7 * 37 + 5 * 37)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("weight", "attrs", "flops"),
    [
        ((6, 4, 3, 3), {"pads": (1, 1, 1, 1)}, 2 * 2 * 6 * 9 * 8 * 4 * 9),
        ((6, 4, 3, 3), {"strides": [2, 2]}, 2 * 2 * 6 * 4 * 3 * 4 * 9),
        ((6, 2, 1, 1), {"groups": 2}, 2 * 2 * 6 * 9 * 8 * 2),
        ((4, 1, 3, 3), {"groups": 4}, 2 * 2 * 4 * 7 * 6 * 9),
    ],
)
def test_convolutions(
    weight: tuple[int, ...], attrs: dict[str, object], flops: int, packed: bool
) -> None:
    got, _ = numbers(
        lambda b, x: b.conv(x, const(random(*weight)), **attrs),
        tensor("x", 2, 4, 9, 8),
        packed=packed,
    )
    assert got == flops


@pytest.mark.parametrize(
    ("kernel", "stride", "packed"),
    [(2, 2, True), (3, 2, True), (4, 2, True), (2, 2, False), (4, 2, False)],
)
def test_transposed_convolutions_count_real_terms(kernel: int, stride: int, packed: bool) -> None:
    """Every pixel meets every tap once; phases of unequal size and cut edges cost no more."""
    pads = (kernel - stride) // 2

    def build(b: Body, x: relax.Var) -> relax.Expr:
        return b.call(
            "conv_transpose", x, const(random(4, 6, kernel, kernel)), shape(*[pads] * 4),
            strides=[stride] * 2, dilations=[1, 1], output_padding=[0, 0], groups=1,
        )  # fmt: skip

    found, _ = numbers(build, tensor("x", 1, 4, 16, 16), packed=packed)
    assert found == pytest.approx(2 * 16 * 16 * 4 * 6 * kernel * kernel, rel=0.15)


def test_sums_without_products_are_not_counted() -> None:
    flops, moved = numbers(lambda b, x: b.call("softmax", x, axis=1), tensor("x", 6, 50))
    assert (flops, moved) == (0, 4 * 2 * 6 * 50)


def test_a_gather_moves_what_it_selects() -> None:
    flops, moved = numbers(
        lambda b, x, i: b.call("gather", x, i, axis=0, node=0),
        tensor("x", 1000, 8),
        tensor("i", 3, dtype="int32"),
    )
    assert (flops, moved) == (0, 4 * (3 * 8 + 3 + 3 * 8))


def test_a_strided_convolution_moves_the_pixels_that_it_meets() -> None:
    _, moved = numbers(
        lambda b, x: b.conv(x, const(random(6, 4, 1, 1)), strides=[2, 2]), tensor("x", 1, 4, 8, 8)
    )
    assert moved == 4 * (4 * 4 * 4 + 6 * 4 + 6 * 4 * 4)


def test_intermediate_results_are_not_counted() -> None:
    def build(b: Body, x: relax.Var) -> relax.Expr:
        return b.call("relu", b.call("sigmoid", b.call("erf", x)))

    assert numbers(build, tensor("x", 10, 10)) == (0, 4 * 200)


def test_lstm() -> None:
    steps, batch, hidden = 3, 2, 20
    blocks = 2

    def build(b: Body, x: relax.Var, h: relax.Var) -> list[relax.Expr]:
        weights = const(random(1, blocks, hidden, 64))
        group = b.call("lstm", x, weights, h, h, hidden=hidden, reverse=False, node=0)
        return [b.emit(relax.TupleGetItem(group, i)) for i in range(3)]

    found, _ = numbers(build, tensor("x", steps, batch, blocks * 64), tensor("h", 1, batch, hidden))
    # Units come in blocks of 16.
    assert found == 2 * steps * batch * 4 * hidden * blocks * 16


def test_symbolic_sizes() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    (found,) = works(lambda b, x, y: b.call("matmul", x, y), tensor("x", n, m), tensor("y", m, 5))
    # The kernel has variables of its own.
    assert {v.name for v in tirx.analysis.undefined_vars(found.flops)} == {"n", "m"}
    analyzer = Analyzer()
    for var in tirx.analysis.undefined_vars(found.flops + found.bytes):
        analyzer.bind(var, tirx.const({"n": 3, "m": 4}[var.name], "int64"))
    assert int(analyzer.simplify(found.flops)) == 2 * 3 * 4 * 5
    assert int(analyzer.simplify(found.bytes)) == 4 * (3 * 4 + 4 * 5 + 3 * 5)
