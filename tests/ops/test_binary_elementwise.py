from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.format.graph import DType, Graph, Node, OpNode, Value
from rten_aot.runtime.errors import InputError, ModelRunError
from tests.support.cases import Array, Case, Mode, Suite, run_case
from tests.support.rten_writer import write_model

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
NAN, INF = math.nan, math.inf

SPECIAL = np.array([NAN, INF, -INF, 0, 1, -1, 3e38, -3e38, 1e-40], "float32")
FLOATS_A, FLOATS_B = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
EDGES = np.array([INT_MIN, INT_MIN + 1, -8, -1, 0, 1, 7, INT_MAX], "int32")
INTS_A, INTS_B = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
DIVISORS = EDGES[EDGES != 0]
DIVIDENDS, NONZERO = (v.ravel() for v in np.meshgrid(EDGES, DIVISORS))
WRAPPED = (7**20 + 2**31) % 2**32 - 2**31
BITS = np.array([[False, True], [True, True]])

Pair = Callable[[Array, Array], Array]


def rng(*shape: int, dtype: str = "float32") -> Array:
    generator = np.random.default_rng(len(shape) + sum(shape))
    if dtype == "float32":
        return generator.normal(size=shape).astype("float32")
    return generator.integers(-100, 100, shape).astype(dtype)


def truncated(a: Array, b: Array) -> Array:
    a, b = a.astype("int64"), b.astype("int64")
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype("int32")


def all_pairs(dtype: str) -> tuple[Array, Array]:
    """The limits of an 8-bit type and what lies around zero, divided by each other."""
    info = np.iinfo(dtype)
    values = np.unique(np.array([info.min, info.min + 1, 7, info.max], dtype))
    values = np.unique(np.concatenate([values, np.arange(3).astype(dtype)]))
    if info.min:
        values = np.unique(np.concatenate([values, np.array([-8, -1], dtype)]))
    a, b = np.meshgrid(values, values[values != 0])
    return a.ravel(), b.ravel()


def shape_of(x: Array) -> str:
    return "x".join(map(str, x.shape)) or "scalar"


ARITHMETIC: dict[str, Pair] = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract}
COMPARISONS: dict[str, Pair] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}
LOGICAL: dict[str, Pair] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
SHAPES = [
    ((2, 3, 33), (2, 3, 33)),
    ((2, 3, 33), (33,)),
    ((2, 3, 33), ()),
    ((), (7,)),
    ((4, 1), (1, 5)),
    ((1, 3, 1, 9), (2, 1, 4, 1)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 0, 3), (1, 1)),
    ((1,), (0,)),
    ((), ()),
]

CASES = [
    *[
        Case(f"{name.lower()}-special", name, [FLOATS_A, FLOATS_B], function)
        for name, function in {**ARITHMETIC, "Div": np.divide}.items()
    ],
    *[
        Case(f"{name.lower()}-int", name, [INTS_A, INTS_B], function, modes=("static", "folded"))
        for name, function in ARITHMETIC.items()
    ],
    *[
        Case(
            f"{name.lower()}-{dtype}", name, [rng(40, dtype=dtype), rng(40, dtype=dtype)], function
        )
        for name, function in ARITHMETIC.items()
        for dtype in ("int8", "uint8")
    ],
    *[
        Case(f"{name.lower()}-{kind}", name, pair, function)
        for name, function in COMPARISONS.items()
        for kind, pair in (("float", [FLOATS_A, FLOATS_B]), ("int", [INTS_A, INTS_B]))
    ],
    *[
        Case(name.lower(), name, [BITS, BITS[::-1].copy()], function)
        for name, function in LOGICAL.items()
    ],
    Case("and-broadcast", "And", [BITS, np.array([True, False])], np.logical_and),
    *[
        Case(
            f"broadcast-{shape_of(rng(*a))}-{shape_of(rng(*b))}",
            "Add",
            [rng(*a), rng(*b)],
            np.add,
            tolerance="close",
        )
        for a, b in SHAPES
    ],
    Case("sub-broadcast", "Sub", [rng(3, 1, 2), rng(4, 1)], np.subtract, tolerance="close"),
    *[
        Case(
            f"{op.lower()}-{dtype}-all{suffix}",
            op,
            list(all_pairs(dtype)),
            lambda a, b, f=function: f(a.astype("int64"), b.astype("int64")).astype(a.dtype),
            attrs,
        )
        for op, suffix, attrs, function in (
            ("Div", "", {}, truncated),
            ("Mod", "", {}, np.mod),
            ("Mod", "-fmod", {"fmod": 1}, np.fmod),
        )
        for dtype in ("int8", "uint8")
    ],
    *[
        Case(
            f"{op.lower()}-whole-floats",
            op,
            [np.array([7, -8, 9], "float32"), np.array(2, "float32")],
            function,
            attrs,
            modes=("static", "folded"),
        )
        for op, attrs, function in (
            ("Div", {}, np.divide),
            ("Mod", {"fmod": 1}, np.fmod),
            ("Mul", {}, np.multiply),
        )
    ],
    Case("div-float", "Div", [rng(5, 33), rng(33)], np.divide, tolerance="close"),
    Case("div-int", "Div", [DIVIDENDS, NONZERO], truncated),
    Case(
        "div-int-signs",
        "Div",
        [np.array([8, -8, 7, -7], "int32"), np.array([-3, 3, -2, 2], "int32")],
        truncated,
        modes=("static", "dynamic", "constant", "folded"),
    ),
    Case(
        "div-uint8", "Div", [np.arange(256, dtype="uint8"), np.array([7], "uint8")], np.floor_divide
    ),
    Case(
        "mod-int",
        "Mod",
        [DIVIDENDS, NONZERO],
        lambda a, b: np.mod(a.astype("int64"), b).astype("int32"),
    ),
    Case(
        "mod-int-fmod",
        "Mod",
        [DIVIDENDS, NONZERO],
        lambda a, b: np.fmod(a.astype("int64"), b).astype("int32"),
        {"fmod": 1},
    ),
    Case("mod-float", "Mod", [FLOATS_A, FLOATS_B], np.fmod, {"fmod": 1}),
    Case(
        "mod-float-signs",
        "Mod",
        [np.array([5.5, -5.5, 5.5, -5.5], "float32"), np.array([2, 2, -2, -2], "float32")],
        np.fmod,
        {"fmod": 1},
    ),
    *[
        Case(
            f"pow-{exponent}",
            "Pow",
            [rng(4, 9), np.array(exponent, "float32")],
            np.power,
            tolerance="close",
        )
        for exponent in (2, 3, 1, 0, -1, 0.5)
    ],
    Case(
        "pow-broadcast",
        "Pow",
        [np.abs(rng(3, 1)) + 0.1, np.array([0.5, 2, -1.5, 0], "float32")],
        np.power,
        tolerance="close",
    ),
    Case(
        "pow-int-exponent-odd",
        "Pow",
        [np.float32([-1, -1, -1, 2]), np.array([2**24 + 1, 2**24, -(2**24) - 1, -3], "int32")],
        np.power,
        tolerance="close",
    ),
    Case("pow-int-exponent", "Pow", [rng(7), np.array([3], "int32")], np.power, tolerance="close"),
    Case(
        "pow-int",
        "Pow",
        [
            np.array([3, -3, 7, 2, 2, 0, -2, 1], "int32"),
            np.array([5, 3, 20, 31, 32, 0, 31, -4], "int32"),
        ],
        [np.array([243, -27, WRAPPED, INT_MIN, 0, 1, INT_MIN, 1], "int32")],
        modes=("static", "dynamic", "constant", "folded"),
    ),
    Case(
        "pow-int-square",
        "Pow",
        [np.array([3, -3, 65536, INT_MIN], "int32"), np.array(2, "int32")],
        [np.array([9, 9, 0, 0], "int32")],
    ),
    *[
        Case(
            f"pow-int-float-{exponent:g}",
            "Pow",
            [np.array([65536, -3000, 7], "int32"), np.array(exponent, "float32")],
            [np.array(results, "int32")],
        )
        for exponent, results in (
            (2.0, [INT_MAX, 9_000_000, 49]),
            (3.0, [INT_MAX, INT_MIN, 343]),
        )
    ],
    Case(
        "pow-int-float",
        "Pow",
        [np.array([7, 2, 2, 3, -5], "int32"), np.array([9, 0.5, 40, -1, 3], "float32")],
        [np.array([40353607, 1, INT_MAX, 0, -125], "int32")],
    ),
    Case(
        "prelu",
        "PRelu",
        [rng(2, 3, 4, 5), rng(3, 1, 1)],
        lambda x, s: np.where(x < 0, x * s, x),
        tolerance="close",
    ),
    Case(
        "prelu-one",
        "PRelu",
        [rng(2, 9), rng(1)],
        lambda x, s: np.where(x < 0, x * s, x),
        tolerance="close",
    ),
    *[
        Case(
            f"where-{dtype}",
            "Where",
            [np.array([[True], [False], [True]]), rng(4, dtype=dtype), rng(2, 1, 1, dtype=dtype)],
            np.where,
        )
        for dtype in ("float32", "int32", "uint8")
    ],
    Case("where-number", "Where", [np.array(True), np.array(3), np.array(4)], np.where),
    Case("where-empty", "Where", [np.zeros((0, 1), bool), rng(1, 3), rng(1, 1)], np.where),
    Case("mod-float-broadcast", "Mod", [rng(3, 1), rng(4)], np.fmod, {"fmod": 1}),
    Case("pow-of-number", "Pow", [np.array(2, "float32"), rng(2, 3)], np.power, tolerance="close"),
    *[
        Case(
            f"pow-more-axes-{exponent}",
            "Pow",
            [np.array([3, -4], "float32"), np.full((1, 1), exponent, "float32")],
            np.power,
            tolerance="close",
        )
        for exponent in (1, 2, 3)
    ],
    Case(
        "pow-special",
        "Pow",
        [
            np.array([0, -0.0, 0, INF, -INF, -INF, 1, NAN, -1, -8], "float32"),
            np.array([0, -3, -2, 0.5, 3, -3, NAN, 0, INF, 1 / 3], "float32"),
        ],
        np.power,
        tolerance="close",
        modes=("static", "dynamic", "constant", "folded"),
    ),
    Case(
        "where-nan",
        "Where",
        [np.array([True, False]), np.array([1, NAN], "float32"), np.array([NAN, 2], "float32")],
        np.where,
        modes=("static", "folded"),
    ),
]
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_binary_elementwise(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_a_chain_of_broadcasts_of_free_sizes_stays_small() -> None:
    sizes = [1, 1, 5, 1, 5, 1, 1, 5, 1, 1]
    nodes: list[Node] = [Value(f"x{i}", (f"n{i}", f"m{i}"), "float32") for i in range(len(sizes))]
    total = 0
    for i in range(1, len(sizes)):  # sizes in each operand's formula, which must not double
        nodes.append(Value(f"v{i}", None, None))
        nodes.append(OpNode(f"a{i}", "Add", (total, i), (len(nodes) - 1,), {}))
        nodes.append(Value(f"w{i}", None, None))
        nodes.append(OpNode(f"b{i}", "Max", (len(nodes) - 3, total), (len(nodes) - 1,), {}))
        total = len(nodes) - 2
    xs = [rng(n, 6 - n) for n in sizes]
    want = xs[0].astype(np.float64)
    for x in xs[1:]:
        want = np.maximum(want + x, want)
    with tempfile.TemporaryDirectory() as folder:
        graph = Graph(tuple(nodes), tuple(range(len(sizes))), (total,))
        model = write_model(graph, Path(folder) / "m.rten")
        library = rten_aot.compile(model, Path(folder) / "m.so", target="llvm -mcpu=native")
        assert library.stat().st_size < 1_000_000
        (result,) = rten_aot.load(library)(*xs)
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["static", "dynamic", "constant", "folded"])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize(("op", "attrs"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
def test_integer_division_by_zero_fails_the_run(
    op: str, attrs: dict[str, int], dtype: str, mode: Mode
) -> None:
    values = [np.arange(40).astype(dtype), (np.arange(40) - 20).astype(dtype)]
    with pytest.raises(ModelRunError, match=f'"zero" \\({op}\\): division by zero'):
        run_case(Case("zero", op, values, [], attrs), mode)


def test_sizes_that_contradict_each_other_are_refused() -> None:
    case = Case("bad", "Add", [np.zeros(2, "float32"), np.zeros(3, "float32")], [])
    with pytest.raises(
        rten_aot.ShapeError, match='"bad" \\(Add\\): sizes 2 and 3 cannot be broadcast'
    ):
        run_case(case)
    message = r'"bad" \(Add\): sizes .* cannot be broadcast \(.* is 2, .* is 3\)'
    with pytest.raises(InputError, match=message):
        run_case(case, "dynamic")


def run_chain(steps: Sequence[tuple[str, Sequence[int], Mapping[str, Any]]], x: Array) -> Array:
    """The last result of operators whose inputs are numbered: 0 is ``x``, then results in turn."""
    dtype: DType = "float32" if x.dtype == np.float32 else "int32"
    nodes: list[Node] = [Value("x", x.shape, dtype)]
    values = [0]
    for op, inputs, attrs in steps:
        nodes.append(Value(f"v{len(nodes)}", None, None))
        values.append(len(nodes) - 1)
        operands = tuple(values[i] for i in inputs)
        nodes.append(OpNode(f"n{len(nodes)}", op, operands, (values[-1],), attrs))
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Graph(tuple(nodes), (0,), (values[-1],)), Path(folder) / "m.rten")
        library = rten_aot.compile(model, Path(folder) / "m.so", target="llvm -mcpu=native")
        (result,) = rten_aot.load(library)(x)
    return np.asarray(result)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Sub", np.subtract),
        ("Div", np.divide),
        ("Equal", np.equal),
        ("GreaterOrEqual", np.greater_equal),
        ("Less", np.less),
        ("Max", np.maximum),
    ],
)
def test_nan_and_infinity_against_themselves(op: str, function: Pair) -> None:
    result = run_chain([(op, [0, 0], {})], SPECIAL)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, function(SPECIAL, SPECIAL))


def test_what_was_added_is_not_cancelled() -> None:
    x = np.array([1e-9, 0.3, INF, NAN, 1e9], "float32")
    result = run_chain([("Exp", [0], {}), ("Add", [1, 0], {}), ("Sub", [2, 1], {})], x)
    with np.errstate(all="ignore"):
        raised = np.exp(x)
        np.testing.assert_allclose(result, (raised + x) - raised, rtol=0.1)


def test_wrapped_integers_are_compared_as_they_are() -> None:
    x = np.concatenate([EDGES, np.arange(-20, 20, dtype="int32")])
    doubled = run_chain([("Add", [0, 0], {}), ("Greater", [1, 0], {})], x)
    np.testing.assert_array_equal(doubled, (x + x > x).astype("int32"))
    squared = run_chain([("Mul", [0, 0], {}), ("Sub", [1, 0], {}), ("Less", [2, 0], {})], x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(squared, (x * x - x < x).astype("int32"))


def test_activations_after_arithmetic_keep_nan() -> None:
    x = np.concatenate([SPECIAL, np.linspace(-3, 3, 40, dtype="float32")])
    result = run_chain([("Sub", [0, 0], {}), ("Add", [1, 0], {}), ("Relu", [2], {})], x)
    with np.errstate(all="ignore"):
        expected = (x - x) + x
    np.testing.assert_array_equal(result, np.where(expected < 0, 0, expected))


def test_operands_of_different_types_are_refused() -> None:
    inputs = [np.zeros(3, "float32"), np.zeros(3, "int32")]
    with pytest.raises(rten_aot.ShapeError, match="operands of different types: float32, int32"):
        run_case(Case("bad", "Mul", inputs, [], rten={}))
