"""Operators on corresponding elements, with broadcasting, every data type and special values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.generated.generator import DTYPES, SIZES, SMALL, Generator
from tests.ops import test_binary_elementwise as binaries
from tests.ops import test_convert, test_variadic_elementwise
from tests.ops import test_unary_elementwise as unaries
from tests.support.cases import MODES, Array, Case

INTEGERS = ("int32", "int8", "uint8")
SPECIAL = np.array(
    [
        math.nan,
        math.inf,
        -math.inf,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        1e-45,
        -1e-40,
        2.0**-126,
        1e-20,
        88.7,
        -103.0,
        2.0**23 + 1,
        2.0**31,
        -3e9,
        1e19,
        3.4e38,
        -3.4e38,
    ],
    np.float32,
)
EXACT = ("Abs", "Ceil", "Floor", "Neg", "Reciprocal", "Relu", "Round", "Sign", "Sqrt")


def shapes(g: Generator, count: int) -> list[list[int]]:
    """Shapes that broadcast against each other, of ranks 0 to 6."""
    rank = g.pick(0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6)
    few = [1, 1, 2, 2, 3, 5] if rank > 4 else SMALL[:9]
    full = [g.pick(*([*SIZES, 200, 1000] if rank < 3 else few)) for _ in range(rank)]
    if rank and g.chance(0.06):
        full[g.random.randrange(rank)] = 0
    result = []
    for _ in range(count):
        own = full if g.chance(0.4) else full[g.random.randrange(rank + 1) :]
        result.append([1 if g.chance(0.25) else size for size in own])
    return result


def values(g: Generator, shape: Sequence[int], dtype: str, *, special: float = 0.2) -> Array:
    """Random numbers of every size, ``special`` of them extreme ones."""
    if dtype == "float32":
        x = np.asarray(g.numbers.normal(size=shape) * 10.0 ** g.numbers.integers(-3, 4, shape))
        extreme = g.numbers.choice(SPECIAL, shape)
        return np.where(g.numbers.random(shape) < special, extreme, x.astype(np.float32))
    info = np.iinfo(dtype)
    whole = g.numbers.integers(info.min, info.max, shape, dtype, endpoint=True)
    small = np.asarray(g.numbers.integers(-9, 10, shape)).astype(dtype)
    edges = np.array([info.min, info.min + 1, 0, 1, info.max], dtype)
    picked = g.numbers.random(shape)
    some = np.where(picked < 0.5, whole, small)
    return np.asarray(np.where(picked > 1 - special, g.numbers.choice(edges, shape), some))


def operands(g: Generator, count: int, dtype: str) -> list[Array]:
    return [values(g, shape, dtype) for shape in shapes(g, count)]


def unary(g: Generator, name: str) -> Case:
    op = g.pick(*unaries.FLOAT_FUNCTIONS, "Cos", "Sin", "Tan", "IsInf", "IsNaN")
    functions = {
        **unaries.FLOAT_FUNCTIONS,
        "Cos": np.cos,
        "Sin": np.sin,
        "Tan": np.tan,
        "IsInf": np.isinf,
        "IsNaN": np.isnan,
    }
    dtype = g.pick(*DTYPES) if op in ("Abs", "Neg", "Relu", "Sign") else "float32"
    exact = op in EXACT or op.startswith("Is") or dtype != "float32"
    (x,) = operands(g, 1, dtype)
    return Case(name, op, [x], functions[op], tolerance="exact" if exact else "close", modes=MODES)


def activation(g: Generator, name: str) -> Case:
    """Functions with parameters."""
    alpha, beta = g.pick(0.0, 1.0, 0.1, -0.5, 1.5), g.pick(0.0, 0.5, 0.2, -0.3)
    wide = [float(np.float32(v)) for v in (alpha, beta)]
    functions: dict[str, tuple[Callable[[Array], Array], dict[str, Any]]] = {
        "LeakyRelu": (lambda x: np.where(x < 0, wide[0] * x, x), {"alpha": alpha}),
        "Elu": (lambda x: np.where(x < 0, wide[0] * np.expm1(x), x), {"alpha": alpha}),
        "HardSigmoid": (
            lambda x: unaries._clamp(wide[0] * x + wide[1], 0, 1),
            {"alpha": alpha, "beta": beta},
        ),
    }
    (x,) = operands(g, 1, "float32")
    op = g.pick(*functions, "Gelu")
    if op == "Gelu":
        kind = g.pick("None", "Tanh")
        function = unaries._gelu if kind == "None" else unaries._gelu_tanh
        rten = {"approximate": kind}
        return Case(name, op, [x], function, rten=rten, tolerance="close", modes=MODES)
    function, attrs = functions[op]
    return Case(name, op, [x], function, attrs, tolerance="close", modes=MODES)


def binary(g: Generator, name: str) -> Case:
    op, function = g.pick(
        *binaries.ARITHMETIC.items(), *binaries.COMPARISONS.items(), ("Div", np.divide)
    )
    dtype = g.pick("float32", *(INTEGERS if op != "Div" else []))
    return Case(name, op, operands(g, 2, dtype), function, modes=MODES)


def logical(g: Generator, name: str) -> Case:
    if g.chance(0.2):
        (x,) = shapes(g, 1)
        return Case(name, "Not", [values(g, x, g.pick(*INTEGERS))], np.logical_not, modes=MODES)
    op, function = g.pick(*binaries.LOGICAL.items())
    dtype = g.pick(*INTEGERS, "bool")
    pair = [values(g, shape, "int8" if dtype == "bool" else dtype) for shape in shapes(g, 2)]
    if dtype == "bool":
        pair = [x > 0 for x in pair]
    return Case(name, op, pair, function, modes=MODES)


def division(g: Generator, name: str) -> Case:
    """Div and Mod of integers that are not 0, Mod of floats."""
    op = g.pick("Div", "Mod")
    truncated = op == "Mod" and g.chance(0.5)
    attrs = {"fmod": int(truncated)} if op == "Mod" else {}
    if op == "Mod" and g.chance(0.3):
        pair = operands(g, 2, "float32")
        return Case(name, op, pair, np.fmod, {"fmod": 1}, modes=MODES)
    dtype = g.pick(*INTEGERS)
    a, b = operands(g, 2, dtype)
    b = np.where(b == 0, np.array(g.pick(1, 3, 100), dtype), b)

    def expected(x: Array, y: Array) -> Array:
        wide = x.astype("int64"), y.astype("int64")
        if op == "Mod":
            return np.asarray((np.fmod if truncated else np.mod)(*wide)).astype(dtype)
        quotient = np.abs(wide[0]) // np.abs(wide[1])
        return np.asarray(np.sign(wide[0]) * np.sign(wide[1]) * quotient).astype(dtype)

    return Case(name, op, [a, b], expected, attrs, modes=MODES)


def _whole_power(base: int, exponent: int) -> int:
    if exponent >= 0:
        return pow(base, exponent, 2**32)
    if base == 0:
        return 2**31 - 1
    return base ** (-exponent % 2) if abs(base) == 1 else 0


def _wrapped(x: Array, dtype: str) -> Array:
    bits = 8 * np.dtype(dtype).itemsize
    unsigned = np.asarray(np.asarray(x, object) % 2**bits).astype(f"uint{bits}")
    return unsigned.view(dtype)


def power(g: Generator, name: str) -> Case:
    base, exponent = g.pick(
        ("float32", "float32"),
        ("float32", "int32"),
        ("int32", "float32"),
        *((a, b) for a in INTEGERS for b in INTEGERS),
    )
    first, second = shapes(g, 2)
    x, y = values(g, first, base), values(g, second, exponent)
    if g.chance(0.5):  # what is often seen, alone or for each element
        common = np.array([-2, -1, 0, 1, 2, 3] if base != "float32" else [-1, 0, 0.5, 1, 2, 3])
        y = g.numbers.choice(common, [] if g.chance(0.5) else second)
        y = np.asarray(y).astype(exponent)
    elif base == "float32" and exponent == "int32":
        y = y % np.int32(40) - np.int32(20)

    def expected(a: Array, b: Array) -> Array:
        if base == "float32":
            return np.asarray(np.power(a.astype("float64"), b.astype("float64")))
        if exponent == "float32":
            exact = np.power(a.astype("float64"), b.astype("float64"))
            return test_convert.cast(exact, "int32")
        return _wrapped(np.frompyfunc(_whole_power, 2, 1)(a, b), base)

    tolerance = "close" if base == "float32" else "exact"
    return Case(name, "Pow", [x, y], expected, tolerance=tolerance, modes=MODES)


def clip(g: Generator, name: str) -> Case:
    dtype = g.pick("float32", "float32", *INTEGERS)
    (x,) = operands(g, 1, dtype)
    bounds = [
        None if g.chance(0.25) else values(g, g.pick([], [], [1]), dtype, special=0.3)
        for _ in range(2)
    ]

    def expected(v: Array, *given: Array | None) -> Array:
        low, high = [*given, None, None][:2]
        v = v if low is None else np.maximum(v, low.reshape(()))
        return v if high is None else np.minimum(v, high.reshape(()))

    while bounds and bounds[-1] is None:
        bounds.pop()
    return Case(name, "Clip", [x, *bounds], expected, modes=MODES)


def where(g: Generator, name: str) -> Case:
    dtype = g.pick(*DTYPES)
    condition, first, second = shapes(g, 3)
    chosen = values(g, condition, "int8") % 3
    kind = g.pick("bool", "int32", "int8", "uint8")
    return Case(
        name,
        "Where",
        [chosen.astype(kind), values(g, first, dtype), values(g, second, dtype)],
        lambda c, x, y: np.where(c != 0, x, y),
        modes=MODES,
    )


def cast(g: Generator, name: str) -> Case:
    source, target = g.pick(*DTYPES), g.pick(*DTYPES)
    (x,) = operands(g, 1, source)
    expected = lambda v, *_: test_convert.cast(v, target)  # noqa: E731  (a case keeps it)
    if g.chance(0.3):
        return Case(name, "CastLike", [x, np.ones(2, target)], expected, rten={}, modes=MODES)
    attrs = {"to": test_convert.TYPES[target]}
    return Case(name, "Cast", [x], expected, attrs, modes=MODES)


def prelu(g: Generator, name: str) -> Case:
    shape, slope = shapes(g, 2)
    shape = np.broadcast_shapes(shape, slope)
    return Case(
        name,
        "PRelu",
        [values(g, shape, "float32"), values(g, slope, "float32")],
        lambda x, s: np.where(x < 0, x * s, x),
        modes=MODES,
    )


def variadic(g: Generator, name: str) -> Case:
    op = g.pick("Max", "Min", "Sum", "Mean")
    dtype = "float32" if op == "Mean" else g.pick("float32", *INTEGERS)
    xs = operands(g, g.pick(1, 2, 3, 4, 6), dtype)
    if op not in ("Max", "Min") and dtype == "float32":  # whose sum no order changes
        quarters = [np.rint(np.clip(x, -1e3, 1e3) * 4) / 4 for x in xs]
        xs = [
            np.where(np.abs(x) < 1e3, q, np.inf).astype(dtype)
            for x, q in zip(xs, quarters, strict=True)
        ]

    def expected(*given: Array) -> Array:
        if op == "Mean":
            total = functools.reduce(np.add, given)
            return np.asarray(total / np.float32(len(given)))
        return np.asarray(test_variadic_elementwise.FUNCTIONS[op](*given))

    return Case(name, op, xs, expected, modes=MODES)


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "unary": unary,
    "activation": activation,
    "binary": binary,
    "logical": logical,
    "division": division,
    "power": power,
    "clip": clip,
    "where": where,
    "cast": cast,
    "prelu": prelu,
    "variadic": variadic,
}
