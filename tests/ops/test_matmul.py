from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime.errors import InputError
from tests.ops.test_control_flow import GraphMaker, compiled
from tests.support.cases import Array, Case, Mode, Suite, run_case


def rng(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def ints(*shape: int, dtype: str) -> Array:
    info = np.iinfo(dtype)
    generator = np.random.default_rng(sum(shape))
    return generator.integers(info.min, info.max, shape, dtype, endpoint=True)


def integer_product(
    a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    a, b = a.astype("int64"), b.astype("int64")
    if a_zero is not None:
        zero = a_zero.astype("int64")
        one_each = zero.ndim == 1 and zero.size > 1
        a = a - (zero[:, None] if one_each else zero.reshape(()) if zero.size == 1 else zero)
    if b_zero is not None:
        b = b - b_zero.astype("int64").reshape(() if b_zero.size == 1 else b_zero.shape)
    return np.asarray(a @ b).astype("int32")


def gemm(alpha: float = 1, beta: float = 1, ta: bool = False, tb: bool = False) -> Any:
    def function(a: Array, b: Array, c: Array | None = None) -> Array:
        result = alpha * ((a.T if ta else a) @ (b.T if tb else b))
        return np.asarray(result if c is None or beta == 0 else result + beta * c)

    return function


SHAPES = [
    ((7, 9), (9, 33)),
    ((1, 64), (64, 64)),
    ((17, 31), (31, 1)),
    ((50, 40), (40, 24)),
    ((2, 5, 7), (7, 9)),
    ((2, 5, 7), (2, 7, 9)),
    ((2, 1, 5, 7), (3, 7, 9)),
    ((7, 9), (4, 9, 5)),
    ((5, 0), (0, 3)),
    ((0, 4), (4, 3)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((5, 4), (4,)),
    ((2, 5, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((0,), (0,)),
]
U8, I8 = ints(7, 40, dtype="uint8"), ints(40, 33, dtype="int8")
NANS = np.full((3, 4), np.nan, "float32")

CASES = [
    *[
        Case(f"matmul-{a}-{b}".replace(" ", ""), "MatMul", [rng(*a), rng(*b)], np.matmul,
             tolerance="approximate")
        for a, b in SHAPES
    ],
    Case("matmul-nan", "MatMul",
         [np.float32([[np.nan, 1], [0, 2]]), np.float32([[0, 1], [np.inf, 2]])],
         np.matmul, modes=("static", "dynamic", "constant", "folded")),
    Case("matmul-large", "MatMul", [rng(130, 257), rng(257, 150)], np.matmul,
         tolerance="approximate"),
    Case(
        "matmul-int32",
        "MatMul",
        [ints(3, 4, dtype="int32"), ints(4, 5, dtype="int32")],
        lambda a, b: (a.astype(object) @ b.astype(object) % 2**32).astype("uint32").view("int32"),
    ),
    *[
        Case(
            f"gemm-{label}",
            "Gemm",
            inputs,
            gemm(alpha, beta, ta, tb),
            {"alpha": alpha, "beta": beta, "transA": int(ta), "transB": int(tb)},
            tolerance="approximate",
        )
        for label, inputs, alpha, beta, ta, tb in (
            ("plain", [rng(7, 9), rng(9, 33)], 1.0, 1.0, False, False),
            ("bias", [rng(7, 9), rng(9, 33), rng(33)], 1.0, 1.0, False, False),
            ("column", [rng(7, 9), rng(9, 33), rng(7, 1)], 1.0, 1.0, False, False),
            ("scalar", [rng(7, 9), rng(9, 33), np.array(2.5, "float32")], 1.0, 1.0, False, False),
            ("whole", [rng(7, 9), rng(9, 33), rng(7, 33)], 0.5, 0.25, False, False),
            ("transposed-b", [rng(7, 9), rng(33, 9), rng(33)], 1.0, 1.0, False, True),
            ("transposed-a", [rng(9, 7), rng(9, 33), rng(33)], 1.0, 2.0, True, False),
            ("transposed-both", [rng(9, 7), rng(33, 9), rng(33)], -1.0, 1.0, True, True),
            ("beta-zero", [rng(3, 5), rng(5, 4), NANS], 1.0, 0.0, False, False),
            ("empty-sum", [rng(3, 0), rng(0, 4), rng(4)], 1.0, 1.0, False, False),
            ("empty-sum-turned", [rng(0, 3), rng(4, 0), rng(3, 1)], 1.0, -2.0, True, True),
            ("beta-zero-no-addend", [rng(3, 5), rng(5, 4)], 1.0, 0.0, False, False),
            ("beta-zero-infinite", [rng(5, 3), rng(5, 4), np.float32([np.inf, np.nan, 0, 1])],
             1.0, 0.0, True, False),
            ("alpha-zero", [np.full((2, 2), np.nan, "float32"), rng(2, 2), rng(2)], 0.0, 1.0, False,
             False),
            ("one-row", [rng(1, 100), rng(10, 100), rng(10)], 1.0, 1.0, False, True),
        )
    ],
    *[
        Case(f"integer-{label}", "MatMulInteger", inputs, integer_product)
        for label, inputs in (
            ("u8-i8", [U8, I8]),
            ("u8-u8", [U8, ints(40, 33, dtype="uint8")]),
            ("i8-i8", [ints(7, 40, dtype="int8"), I8]),
            ("i8-u8", [ints(7, 40, dtype="int8"), ints(40, 33, dtype="uint8")]),
            ("zero-a", [U8, I8, np.array(128, "uint8")]),
            ("zero-b", [U8, I8, None, np.array(-3, "int8")]),
            ("zero-both", [U8, I8, np.array(7, "uint8"), np.array([5], "int8")]),
            ("zero-rows", [U8, I8, np.arange(7).astype("uint8")]),
            ("zero-columns", [U8, I8, np.array(9, "uint8"), np.arange(33).astype("int8")]),
            ("zero-each-row", [ints(2, 7, 40, dtype="uint8"), I8, ints(2, 7, 1, dtype="uint8")]),
            ("zero-each-column", [U8, ints(2, 40, 5, dtype="int8"), None,
                                  ints(2, 1, 5, dtype="int8")]),
            ("zero-none", [U8, I8, np.array(0, "uint8"), np.array(0, "int8")]),
            ("batch", [ints(2, 7, 40, dtype="uint8"), I8, np.array(100, "uint8")]),
            ("batch-both", [ints(2, 7, 40, dtype="uint8"), ints(2, 40, 5, dtype="int8"),
                            np.array(100, "uint8"), np.array(1, "int8")]),
            ("vector", [ints(40, dtype="uint8"), I8, np.array(3, "uint8")]),
            ("empty-sum", [ints(3, 0, dtype="uint8"), ints(0, 4, dtype="int8")]),
            ("empty-sum-zeros", [ints(3, 0, dtype="uint8"), ints(0, 4, dtype="int8"),
                                 ints(3, dtype="uint8"), ints(4, dtype="int8")]),
            ("no-rows", [ints(0, 5, dtype="uint8"), ints(5, 4, dtype="int8")]),
            ("vectors", [ints(40, dtype="uint8"), ints(40, dtype="int8"), np.array(9, "uint8")]),
            ("by-vector", [U8, ints(40, dtype="int8"), None, np.array([-9], "int8")]),
            ("rows-by-vector", [U8, ints(40, dtype="int8"), np.arange(7).astype("uint8")]),
            ("vector-columns", [ints(40, dtype="uint8"), I8, np.array(7, "uint8"),
                                np.arange(33).astype("int8")]),
            ("batch-rows", [ints(2, 1, 7, 40, dtype="uint8"), ints(3, 40, 5, dtype="int8"),
                            np.arange(7).astype("uint8"), np.arange(5).astype("int8")]),
            ("far-zeros", [np.full((9, 300), -128, "int8"), np.full((300, 40), -128, "int8"),
                           np.array(127, "int8"), np.array(127, "int8")]),
        )
    ],
    Case(
        "integer-exact",
        "MatMulInteger",
        [np.full((1, 4), 255, "uint8"), np.full((4, 1), 127, "int8")],
        [np.array([[129540]], "int32")],
    ),
    Case(
        "integer-extreme",
        "MatMulInteger",
        [np.full((2, 64), 255, "uint8"), np.full((64, 16), -128, "int8")],
        integer_product,
    ),
]  # fmt: skip
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_matmul(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_inner_sizes_must_agree(op: str) -> None:
    case = Case("bad", op, [rng(2, 3), rng(4, 5)], [])
    with pytest.raises(rten_aot.ShapeError, match="inner sizes of the product 3 and 4 differ"):
        run_case(case)
    with pytest.raises(
        InputError, match=r"inner sizes of the product .* differ \(.* is 3, .* is 4\)"
    ):
        run_case(case, "dynamic")


@pytest.mark.parametrize("sizes", [("m", "k", "n"), (2, "k", 4), (2, 3, 4), (2, 0, 4)])
def test_a_product_of_no_terms_plus_bias(sizes: Sequence[Any], tmp_path: Path) -> None:
    """A kernel that adds the bias to its tile, too, has nothing but the bias then."""
    m, k, n = sizes
    g = GraphMaker()
    a, b = g.input("a", (m, k)), g.input("b", (k, n))
    if k == 0:  # a file cannot say so: it means "unknown" there
        none = [g.constant(f"none{i}", np.int32([v])) for i, v in enumerate((0, 0, 1, 0))]
        a, b = g.op("Slice", a, *none[:2], none[2]), g.op("Slice", b, *none[:2], none[3])
    product = g.op("MatMul", a, b)
    total = g.op("Add", product, g.input("c", (n,)))
    model = compiled(g.graph(total, g.op("Relu", total), product), tmp_path)
    for count in (0, 3) if isinstance(k, str) else (3,):
        x, y, bias = np.ones((2, count), "f"), np.ones((count, 4), "f"), np.float32([1, -9, 3, -4])
        want = np.full((2, 4), 0 if k == 0 else count, "f")
        got = model(x, y, bias)
        for result, wanted in zip(
            got, (want + bias, np.maximum(want + bias, 0), want), strict=True
        ):
            np.testing.assert_array_equal(result, wanted)
