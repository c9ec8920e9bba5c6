from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import rten_aot
from tests.support.cases import Array, Case, Mode, Suite, run_case

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
NAN, INF = math.nan, math.inf

# 33 elements: past two vectors of AVX-512, with a tail for every vector width.
ORDINARY = np.linspace(-6, 6, 33, dtype="float32")
SPECIAL = np.array([NAN, INF, -INF, 0, 1e-30, -1e-30, 87, -87, 1e30, -1e30, 0.5, 1.5], "float32")
MIXED = np.concatenate([ORDINARY, SPECIAL])
INTEGERS = np.array([INT_MIN, INT_MIN + 1, -7, -1, 0, 1, 8, INT_MAX, 300], "int32")


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _clamp(x: Array, low: float, high: float) -> Array:
    return np.where(np.isnan(x), x, np.minimum(np.maximum(x, low), high))


FLOAT_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Asin": np.arcsin,
    "Atan": np.arctan,
    "Ceil": np.ceil,
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "HardSwish": lambda x: x * _clamp(x / 6 + 0.5, 0, 1),
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.where(x < 0, 0, x),
    "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Softplus": lambda x: np.logaddexp(0, x),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}

CASES = [
    *[
        Case(name.lower(), name, [MIXED], function, tolerance="close")
        for name, function in FLOAT_FUNCTIONS.items()
    ],
    *[
        Case(name.lower(), name, [ORDINARY], function, tolerance="close")
        for name, function in (("Cos", np.cos), ("Sin", np.sin), ("Tan", np.tan))
    ],
    *[
        Case(f"{name.lower()}-int", name, [INTEGERS], lambda x, f=function: f(x))
        for name, function in (("Abs", np.abs), ("Neg", np.negative), ("Sign", np.sign))
    ],
    Case("relu-int", "Relu", [INTEGERS], lambda x: np.maximum(x, 0)),
    Case("relu-uint8", "Relu", [np.array([200], "uint8")], lambda x: x),
    Case("abs-int8", "Abs", [np.array([-128, -1, 0, 127], "int8")], np.abs),
    Case("neg-int8", "Neg", [np.array([-128, -1, 0, 127], "int8")], np.negative),
    Case("isinf", "IsInf", [MIXED], np.isinf),
    Case("isnan", "IsNaN", [MIXED], np.isnan),
    Case("not", "Not", [np.array([[True, False, True]])], np.logical_not),
    Case(
        "round-half-even",
        "Round",
        [np.array([0.5, 1.5, 2.5, -0.5, -2.5, 3.49999, 8388609.0], "float32")],
        np.rint,
        modes=("static", "folded"),
    ),
    Case(
        "leakyrelu",
        "LeakyRelu",
        [MIXED],
        lambda x: np.where(x < 0, 0.1 * x, x),
        {"alpha": 0.1},
        tolerance="close",
    ),
    Case(
        "elu",
        "Elu",
        [MIXED],
        lambda x: np.where(x < 0, 0.5 * np.expm1(x), x),
        {"alpha": 0.5},
        tolerance="close",
    ),
    Case(
        "hardsigmoid",
        "HardSigmoid",
        [MIXED],
        lambda x: _clamp(np.float64(np.float32(0.3)) * x + np.float64(np.float32(0.4)), 0, 1),
        {"alpha": 0.3, "beta": 0.4},
        tolerance="close",
    ),
    Case(
        "leakyrelu-zero", "LeakyRelu", [MIXED], lambda x: np.where(x < 0, 0 * x, x), {"alpha": 0.0}
    ),
    Case(
        "elu-zero",
        "Elu",
        [MIXED],
        lambda x: np.where(x < 0, 0 * np.expm1(x), x),
        {"alpha": 0.0},
    ),
    Case(
        "hardsigmoid-zero",
        "HardSigmoid",
        [MIXED],
        lambda x: 0 * x + np.float32(0.4),
        {"alpha": 0.0, "beta": 0.4},
    ),
    Case("gelu", "Gelu", [MIXED], _gelu, tolerance="close", rten={"approximate": "None"}),
    Case("gelu-tanh", "Gelu", [MIXED], _gelu_tanh, tolerance="close", rten={"approximate": "Tanh"}),
    Case("scalar", "Exp", [np.array(1.5, "float32")], np.exp, tolerance="close"),
    Case("empty", "Sigmoid", [np.zeros((2, 0, 3), "float32")], lambda x: x),
    Case(
        "rank-5",
        "Floor",
        [np.linspace(-3, 3, 48, dtype="float32").reshape(2, 1, 3, 2, 4)],
        np.floor,
    ),
    Case("large", "Neg", [np.arange(100_003, dtype="float32")], np.negative),
    Case("clip-none", "Clip", [MIXED], lambda x: x),
    Case(
        "clip-min",
        "Clip",
        [MIXED, np.array(-1, "float32")],
        lambda x, low: np.maximum(x, low),
    ),
    Case(
        "clip-max",
        "Clip",
        [MIXED, None, np.array(2, "float32")],
        lambda x, _, high: np.minimum(x, high),
    ),
    Case(
        "clip-both",
        "Clip",
        [MIXED, np.array(0, "float32"), np.array(6, "float32")],
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
    ),
    Case(
        "clip-crossed",
        "Clip",
        [MIXED, np.array(3, "float32"), np.array(2, "float32")],
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
    ),
    *[
        Case(
            f"clip-nan-{label}",
            "Clip",
            [MIXED, *bounds],
            [np.full(MIXED.shape, NAN, "float32")],
            modes=("static", "dynamic", "constant", "folded"),
        )
        for label, bounds in (
            ("min", [np.array(NAN, "float32")]),
            ("max", [None, np.array(NAN, "float32")]),
        )
    ],
    Case(
        "clip-vectors",
        "Clip",
        [MIXED, np.array([0], "float32"), np.array([6], "float32")],
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
    ),
    Case(
        "clip-int",
        "Clip",
        [INTEGERS, np.array(-5, "int32"), np.array(5, "int32")],
        lambda x, low, high: np.clip(x, low, high),
    ),
    Case(
        "clip-uint8",
        "Clip",
        [np.arange(256, dtype="uint8"), np.array(3, "uint8"), np.array(200, "uint8")],
        lambda x, low, high: np.clip(x, low, high),
    ),
    Case(
        "folded",
        "Exp",
        [np.array([[NAN, 1, -INF]], "float32")],
        np.exp,
        tolerance="close",
        modes=("folded",),
    ),
    Case("folded-int", "Neg", [INTEGERS], np.negative, modes=("folded",)),
]
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_unary_elementwise(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)


def test_both_forms_of_gelu() -> None:
    for form, want in (("None", -0.15865525), ("Tanh", -0.15880801)):
        case = Case("gelu", "Gelu", [np.float32([-1])], [], rten={"approximate": form})
        np.testing.assert_allclose(run_case(case)[0], [want], rtol=1e-6)


@pytest.mark.parametrize("op", ["Exp", "Floor", "Elu", "Gelu"])
def test_other_types_are_refused(op: str) -> None:
    attrs = {"Elu": {"alpha": 1.0}, "Gelu": {"approximate": "None"}}.get(op, {})
    message = f'"bad" \\({op}\\): elements of type int32 are not supported; supported: float32'
    with pytest.raises(rten_aot.UnsupportedOpError, match=message):
        run_case(Case("bad", op, [INTEGERS], [], rten=attrs))


def test_bounds_must_be_scalars_of_the_same_type() -> None:
    message = "a bound must have one element; sizes 3 and 1 differ"
    with pytest.raises(rten_aot.ShapeError, match=message):
        run_case(Case("clip", "Clip", [MIXED, np.zeros(3, "float32")], []))
    with pytest.raises(rten_aot.ShapeError, match="the bounds are int32, the input is float32"):
        run_case(Case("clip", "Clip", [MIXED, np.zeros((), "int32")], []))
