"""Element-by-element operators against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies

import rten_aot.dialect.arithmetic
import rten_aot.dialect.power  # noqa: F401
from rten_aot.dialect import elementwise
from rten_aot.dialect.broadcast import broadcast_shape, index
from rten_aot.errors import ShapeError
from tests.dialect.harness import Array, failure, run

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
NAN, INF = math.nan, math.inf

SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 1e30, -1e30], "float32")
ORDINARY = np.linspace(-6, 6, 33, dtype="float32")
INTEGERS = np.array([INT_MIN, INT_MIN + 1, -7, -1, 0, 1, 8, INT_MAX], "int32")


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": _erf,
    "exp": np.exp,
    "floor": np.floor,
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "is_inf": lambda x: np.isinf(x).astype("int32"),
    "is_nan": lambda x: np.isnan(x).astype("int32"),
    "log": np.log,
    "logical_not": lambda x: (x == 0).astype("int32"),
    "negative": np.negative,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)),
    "round": np.rint,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "softplus": lambda x: np.logaddexp(0, x),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def check(result: Array, expected: Array, *, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    with np.errstate(all="ignore"):
        expected = expected.astype(result.dtype)
    assert result.shape == expected.shape
    if result.dtype.kind == "f":
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(result, expected)


def test_every_function_has_an_oracle() -> None:
    assert FUNCTIONS.keys() == elementwise.UNARY.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unary(name: str) -> None:
    values = np.concatenate([ORDINARY, SPECIAL])
    if name in ("sin", "cos", "tan"):
        values = values[np.abs(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)) < 1e9]
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](values.astype("float64"))
    check(run(name, values)[0], expected)


@pytest.mark.parametrize("name", ["abs", "negative", "sign", "relu", "logical_not"])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_unary_on_integers(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, 0, 1, 5, info.max], dtype)
    (result,) = run(name, values)
    expected = FUNCTIONS[name](values.astype("int64"))
    check(result, expected.astype("int32" if name == "logical_not" else dtype))


def test_round_is_half_to_even() -> None:
    (result,) = run("round", np.array([0.5, 1.5, 2.5, -0.5, -2.5], "float32"))
    np.testing.assert_array_equal(result, [0, 2, 2, -0.0, -2])


def test_small_values_keep_their_digits() -> None:
    x = -np.logspace(-6, 1, 20).astype("float32")
    check(run("elu", x, alpha=2.0)[0], 2 * np.expm1(x.astype("float64")), rtol=1e-6, atol=0)
    check(run("softplus", x * 4)[0], np.log1p(np.exp(x * 4.0, dtype="float64")), atol=0)


@pytest.mark.parametrize(
    ("name", "attrs", "function"),
    [
        ("leaky_relu", {"alpha": 0.1}, lambda x: np.where(x < 0, 0.1 * x, x)),
        ("elu", {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * np.expm1(x), x)),
        (
            "hard_sigmoid",
            {"alpha": 0.3, "beta": 0.4},
            lambda x: np.clip(0.3 * x + 0.4, 0, 1),
        ),
        ("gelu", {"approximate": "none"}, lambda x: x * 0.5 * (1 + _erf(x * math.sqrt(0.5)))),
        ("gelu", {"approximate": "tanh"}, _gelu_tanh),
        ("clip", {"low": -1.0, "high": 2.0}, lambda x: np.clip(x, -1, 2)),
        ("clip", {"low": None, "high": 2.0}, lambda x: np.minimum(x, 2)),
        ("clip", {"low": -1.0, "high": None}, lambda x: np.maximum(x, -1)),
        ("clip", {"low": 3.0, "high": 2.0}, lambda x: np.where(np.isnan(x), x, 2)),
    ],
)
def test_activations(
    name: str, attrs: dict[str, float], function: Callable[[Array], Array]
) -> None:
    values = np.concatenate([ORDINARY, SPECIAL])
    with np.errstate(all="ignore"):
        expected = function(values.astype("float64"))
    check(run(name, values, **attrs)[0], expected)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3), (2, 3)),
        ((3, 1), (1, 4)),
        ((), (5,)),
        ((1,), (1,)),
        ((2, 1, 3), (4, 1)),
        ((0, 3), (1,)),
    ],
)
def test_broadcast(a: tuple[int, ...], b: tuple[int, ...], symbolic: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(INT_MIN, INT_MAX, s, "int32") for s in (a, b))
    with np.errstate(over="ignore"):
        check(run("add", x, y, symbolic=symbolic)[0], np.asarray(x + y))


def test_three_operands_broadcast_together() -> None:
    condition = np.array([[1], [0], [-2]], "int32")
    x, y = np.arange(4, dtype="float32"), np.full((2, 1, 1), NAN, "float32")
    for symbolic in (False, True):
        (result,) = run("where", condition, x, y, symbolic=symbolic)
        np.testing.assert_array_equal(result, np.where(condition != 0, x, y))


def test_sizes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ShapeError, match="sizes 2 and 3 cannot be broadcast"):
        run("add", np.zeros(2, "int32"), np.zeros(3, "int32"))


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_integers_wrap(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, 0, 1, 3, 100, info.max], dtype)
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(over="ignore"):
        check(run(name, x, y)[0], getattr(np, name)(x, y))


@pytest.mark.parametrize("name", ["maximum", "minimum", "add", "subtract", "multiply"])
def test_floats_propagate_nan(name: str) -> None:
    x, y = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        check(run(name, x, y)[0], getattr(np, name)(x, y))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("equal", np.equal),
        ("greater", np.greater),
        ("greater_equal", np.greater_equal),
        ("less", np.less),
        ("less_equal", np.less_equal),
        ("logical_and", np.logical_and),
        ("logical_or", np.logical_or),
        ("logical_xor", np.logical_xor),
    ],
)
def test_comparisons(name: str, function: Callable[[Array, Array], Array]) -> None:
    for values in (INTEGERS,) if name.startswith("logical") else (SPECIAL, INTEGERS):
        x, y = (v.ravel() for v in np.meshgrid(values, values))
        (result,) = run(name, x, y)
        assert result.dtype == np.int32
        check(result, function(x, y).astype("int32"))


def _truncated(a: Array, b: Array) -> Array:
    a, b = a.astype("int64"), b.astype("int64")
    quotient: Array = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return quotient


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_integer_division(dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, 1, 2, 3, 7, 8, 100, info.max], dtype)
    if dtype != "uint8":
        values = np.concatenate([values, np.array([-1, -2, -3, -8, info.min + 1], dtype)])
    a, b = (v.ravel() for v in np.meshgrid(values, values[values != 0]))
    quotient = _truncated(a, b)
    check(run("divide", a, b, node=1)[0], quotient.astype(dtype))
    wide_a, wide_b = a.astype("int64"), b.astype("int64")
    for truncated, rest in ((True, wide_a - quotient * wide_b), (False, wide_a % wide_b)):
        check(run("remainder", a, b, truncated=truncated, node=1)[0], rest.astype(dtype))
    assert failure() is None


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_integer_division_by_zero_fails_the_run(dtype: str) -> None:
    a, b = np.array([5, 0, 7], dtype), np.array([1, 0, 2], dtype)
    run("divide", a, b, node=11)
    assert failure() == (2, 11)
    run("remainder", a, b, truncated=False, node=12)
    assert failure() == (2, 12)


def test_float_remainder() -> None:
    a = np.array([5.5, -5.5, 5.5, -5.5, 4, -4, 1, NAN, INF, 3], "float32")
    b = np.array([2, 2, -2, -2, 2, 2, 0, 1, 2, INF], "float32")
    with np.errstate(all="ignore"):
        check(run("remainder", a, b, truncated=True, node=0)[0], np.fmod(a, b))
        check(run("remainder", a, b, truncated=False, node=0)[0], np.mod(a, b))


def test_powers() -> None:
    x = np.array([2, -2, 0.5, 0, NAN, 9, -8], "float32")
    y = np.array([3, 2, -1, 0, 0, 0.5, 1 / 3], "float32")
    with np.errstate(all="ignore"):
        check(run("power", x, y)[0], x.astype("float64") ** y.astype("float64"))
    base = np.array([7, 2, 2, 3, -5, 0], "int32")
    exponent = np.array([9, 0.5, 40, -1, 3, NAN], "float32")
    check(run("power_of_integer", base, exponent)[0], np.array([40353607, 1, INT_MAX, 0, -125, 0]))


@pytest.mark.parametrize("symbolic", [False, True])
def test_integer_powers(symbolic: bool) -> None:
    base = np.array([3, -3, 7, 2, 2, 0, 0, 1, -1, -1, 5, -2], "int32")
    exponent = np.array([[5, 3, 20, 31, 32, 0, -1, -7, -7, -8, -1, 31]], "int32")
    pairs = zip(base.tolist()[:6], exponent[0].tolist()[:6], strict=True)
    expected = [(b**e + 2**31) % 2**32 - 2**31 for b, e in pairs]
    expected += [INT_MAX, 1, -1, 1, 0, INT_MIN]
    check(run("integer_power", base, exponent, symbolic=symbolic)[0], np.array([expected]))


def test_prelu() -> None:
    x = np.array([[-2, 3], [NAN, -0.5]], "float32")
    slope = np.array([[0.5], [2]], "float32")
    check(run("prelu", x, slope)[0], np.where(x < 0, x * slope, x))


DIMS = strategies.lists(strategies.integers(0, 4), max_size=4)


@given(strategies.lists(DIMS, min_size=1, max_size=3))
def test_shapes_broadcast_as_in_numpy(shapes: list[list[int]]) -> None:
    sizes = [[index(n) for n in shape] for shape in shapes]
    try:
        expected = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        with pytest.raises(ShapeError, match="cannot be broadcast"):
            broadcast_shape(*sizes)
    else:
        assert tuple(int(n) for n in broadcast_shape(*sizes)) == expected
