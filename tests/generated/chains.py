"""Chains of elementwise operators, which one kernel may compute: types meet, sizes broadcast.

What has to be rounded is followed in several versions, each off by as much as a compiler may be. A
step that takes them apart, such as a comparison of what is nearly equal, is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from tests.generated.arithmetic import values
from tests.generated.generator import DTYPES, Generator
from tests.ops import test_binary_elementwise as binaries
from tests.ops import test_convert
from tests.support.cases import MODES, Array, Case

Function = Callable[..., Array]

MOST_ELEMENTS = 4000
VERSIONS = 3


@dataclass(frozen=True)
class Step:
    """An operator and its operands: inputs "x0", "x1" and so on, results of steps "v0", "v1"."""

    op: str
    operands: tuple[str, ...]
    attrs: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Chain(Case):
    """Several operators in one case; ``taken`` are those of the results that are asked for."""

    steps: Sequence[Step] = ()
    taken: Sequence[str] = ()

    def nodes(self, operands: Sequence[str], results: Sequence[str]) -> list[NodeProto]:
        """All of the chain."""
        names = {f"x{i}": name for i, name in enumerate(operands)}
        names |= {f"v{i}": f"{results[0]}_v{i}" for i in range(len(self.steps))}
        names |= dict(zip(self.taken, results, strict=True))
        return [
            helper.make_node(
                step.op,
                [names[x] for x in step.operands],
                [names[f"v{i}"]],
                name=f"{self.id}_{i}",
                **step.attrs,
            )
            for i, step in enumerate(self.steps)
        ]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _either(x: Array, y: Array, greater: Array) -> Array:
    return np.where(np.isnan(x) | (greater & ~np.isnan(y)), x, y)


def _prelu(x: Array, slope: Array) -> Array:
    if np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        raise ValueError("a slope does not enlarge what it is applied to")
    return np.where(x < 0, x * slope, x)


# What is rounded correctly, and what may be off by a few units.
FLOAT_UNARY: dict[str, Function] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.where(x < 0, 0, x),
    "Round": np.rint,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
}
SMOOTH: dict[str, Function] = {
    "Atan": np.arctan,
    "Cos": np.cos,
    "Exp": np.exp,
    "Sigmoid": _sigmoid,
    "Softplus": lambda x: np.logaddexp(0, x),
    "Tanh": np.tanh,
}
FLOAT_BINARY: dict[str, Function] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": lambda x, y: _either(x, y, x > y),
    "Min": lambda x, y: _either(x, y, x < y),
    "PRelu": _prelu,
}
INT_UNARY: dict[str, Function] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Sign": np.sign,
    "Relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
    "Not": lambda x: (x == 0).astype("int32"),
}
INT_BINARY: dict[str, Function] = {
    **binaries.ARITHMETIC,
    "Max": np.maximum,
    "Min": np.minimum,
}
CHOICES: dict[str, Function] = {**binaries.COMPARISONS, **binaries.LOGICAL}


@dataclass
class _Maker:
    """A chain in the making. Every value has several versions; the first is the rounded truth."""

    g: Generator
    inputs: list[Array] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    known: dict[str, list[Array]] = field(default_factory=dict)

    def input(self, shape: Sequence[int], dtype: str) -> str:
        x = values(self.g, shape, dtype, special=0.1)
        if dtype == "float32":  # quarters, of which sums and products are exact
            quarters = np.asarray(self.g.numbers.integers(-33, 34, shape) / np.float32(4))
            x = np.where(self.g.numbers.random(shape) < 0.9, quarters.astype("float32"), x)
        self.inputs.append(np.asarray(x))
        name = f"x{len(self.inputs) - 1}"
        self.known[name] = [self.inputs[-1]] * VERSIONS
        return name

    def pick(self, *dtypes: str) -> str:
        """A value of such a type, rather a late one; a new input if there is none."""
        fit = [n for n, v in self.known.items() if v[0].dtype.name in dtypes]
        if not fit:
            return self.input([], dtypes[0])
        return str(fit[-1] if self.g.chance(0.6) else self.g.pick(*fit))

    def other(self, name: str) -> str:
        """An operand to go with a value: another one of its type, or a new one that broadcasts."""
        x = self.known[name][0]
        if self.g.chance(0.4):
            return self.pick(x.dtype.name)
        shape = [self.g.pick(n, n, 1) if n != 1 else self.g.pick(1, 1, 1, 4) for n in x.shape]
        kind = self.g.random.random()
        if kind < 0.4:
            shape = shape[self.g.random.randrange(len(shape) + 1) :]
        elif kind < 0.5 and len(shape) < 5:
            shape = [self.g.pick(1, 2, 3), *shape]
        return self.input(shape, x.dtype.name)

    def add(
        self,
        op: str,
        names: Sequence[str],
        function: Function,
        *,
        rough: bool = False,
        **attrs: Any,
    ) -> None:
        """Make the step unless sizes do not fit, its versions come apart or it grows too large."""
        try:
            versions = [
                self._applied(function, [self.known[n][k] for n in names], k, rough)
                for k in range(VERSIONS)
            ]
        except ValueError:
            return
        first = versions[0]
        if first.size > MOST_ELEMENTS or not all(_near(v, first) for v in versions[1:]):
            return
        self.steps.append(Step(op, tuple(names), attrs))
        self.known[f"v{len(self.steps) - 1}"] = versions

    def _applied(self, function: Function, operands: list[Array], k: int, rough: bool) -> Array:
        floats = operands[-1].dtype == np.float32
        if floats and function not in CHOICES.values():
            operands = [x.astype("float64") if x.dtype == np.float32 else x for x in operands]
        with np.errstate(all="ignore"):
            y = np.asarray(function(*operands))
            if y.dtype != np.float64:
                return y.astype("int32") if y.dtype == bool else y
            result = y.astype("float32")
            if k and rough:
                off = (result != y) * (k - 1.5) * 2.0**-21
                result = np.where(np.isfinite(y), y * (1 + off), y).astype("float32")
            return result


def _near(a: Array, b: Array) -> bool:
    if a.dtype != np.float32:
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, rtol=1e-5, atol=4e-6, equal_nan=True)) and bool(
        np.array_equal(np.isinf(a), np.isinf(b))
    )


def _float_step(m: _Maker) -> None:
    x = m.pick("float32")
    kind = m.g.random.random()
    if kind < 0.25:
        op = m.g.pick(*FLOAT_UNARY)
        m.add(op, [x], FLOAT_UNARY[op])
    elif kind < 0.4:
        op = m.g.pick(*SMOOTH)
        m.add(op, [x], SMOOTH[op], rough=True)
    elif kind < 0.5:
        low, high = m.g.pick(-2.0, 0.0), m.g.pick(1.0, 6.0)
        bounds = [m.input([], "float32") for _ in range(2)]
        for name, bound in zip(bounds, (low, high), strict=True):
            m.inputs[int(name[1:])] = np.float32(bound).reshape(())
            m.known[name] = [np.float32(bound).reshape(())] * VERSIONS
        m.add("Clip", [x, *bounds], lambda v, a, b: np.where(v < a, a, np.where(v > b, b, v)))
    else:
        op = m.g.pick(*FLOAT_BINARY)
        pair = [x, m.other(x)]
        if op != "PRelu" and m.g.chance(0.5):
            pair.reverse()
        m.add(op, pair, FLOAT_BINARY[op], rough=op in ("Mul", "PRelu"))


def _int_step(m: _Maker) -> None:
    x = m.pick("int32", "int32", "int8", "uint8")
    if m.g.chance(0.3):
        op = m.g.pick(*INT_UNARY)
        m.add(op, [x], INT_UNARY[op])
        return
    pair = [x, m.other(x)]
    if m.g.chance(0.5):
        pair.reverse()
    op = m.g.pick(*INT_BINARY)
    m.add(op, pair, INT_BINARY[op])


def _choice_step(m: _Maker) -> None:
    """A comparison, or a choice by one."""
    if m.g.chance(0.5):
        op = m.g.pick(*CHOICES)
        x = m.pick(*(("int32",) if op in binaries.LOGICAL else DTYPES))
        m.add(op, [x, m.other(x)], CHOICES[op])
        return
    x = m.pick(*DTYPES)
    condition, other = m.pick("int32"), m.other(x)
    m.add("Where", [condition, x, other], lambda c, a, b: np.where(c != 0, a, b))


def _cast_step(m: _Maker) -> None:
    x, target = m.pick(*DTYPES), m.g.pick("float32", "int32", "int8", "uint8")
    convert = lambda v: test_convert.cast(v, target)  # noqa: E731  (a step keeps it)
    m.add("Cast", [x], convert, to=test_convert.TYPES[target])


def _move_step(m: _Maker) -> None:
    x = m.pick(*DTYPES)
    rank = m.known[x][0].ndim
    perm = m.g.random.sample(range(rank), rank)
    if perm:
        m.add("Transpose", [x], lambda v: v.transpose(perm), perm=perm)


def chain(g: Generator, name: str) -> Case:
    m = _Maker(g)
    rank = g.random.randint(0, 4)
    shape = [
        g.pick(1, 2, 3, 5, 8, 17) if rank > 2 else g.pick(1, 3, 16, 33, 60) for _ in range(rank)
    ]
    m.input(shape, g.pick("float32", "float32", "float32", *DTYPES))
    length = g.random.randint(3, 10)
    for _ in range(10 * length):
        g.pick(
            _float_step, _float_step, _int_step, _choice_step, _choice_step, _cast_step, _move_step
        )(m)
        if len(m.steps) == length:
            break
    results = list(dict.fromkeys([f"v{len(m.steps) - 1}", f"v{g.random.randrange(len(m.steps))}"]))
    if g.chance(0.5):
        results = results[:1]
    exact = all(
        np.array_equal(v, m.known[r][0], equal_nan=True) for r in results for v in m.known[r]
    )
    return Chain(
        name,
        "+".join(step.op for step in m.steps),
        m.inputs,
        [m.known[r][0] for r in results],
        outputs=len(results),
        tolerance="exact" if exact else "approximate",
        modes=MODES,
        steps=m.steps,
        taken=results,
    )


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {"chain": chain}
