"""Random graphs of operators, and what NumPy makes of them for any inputs.

Numbers are small and whole, so that nearly all results are exact whatever the order of additions.
Values that are not are "rough": they are compared with a tolerance and decide on nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rten_aot.format.graph import Dim
from tests.generated.generator import Generator
from tests.ops.test_control_flow import GraphMaker
from tests.support.cases import Array

MOST_ELEMENTS = 40_000
LARGEST = 64


class Unfit(Exception):
    """An operator cannot take a value; another one is tried."""


@dataclass(frozen=True)
class Step:
    """An operator: where its operands and results are, and what it does to arrays."""

    operands: tuple[int, ...]
    results: tuple[int, ...]
    function: Callable[..., Any]


@dataclass
class Program:
    """A graph that grows by one operator at a time. Values are known by their place in it.

    Floats are float64 in ``arrays``, which has every value for the inputs that were drawn.
    """

    g: Generator
    maker: GraphMaker
    label: str
    arrays: dict[int, Array] = field(default_factory=dict)
    stored: dict[int, Array] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    rough: set[int] = field(default_factory=set)
    parent: Program | None = None
    captured: dict[int, int] = field(default_factory=dict)
    """Places of captured values here, by their places in the parent."""
    condition: Callable[[], int] | None = None
    """Makes an input that is 0 or 1, where there are inputs."""
    count: Callable[[], int] | None = None
    """Makes an input that is a small number, where there are inputs."""

    def input(self, name: str, dims: Sequence[Dim], array: Array, *, rough: bool = False) -> int:
        """An input of the graph."""
        place = self.maker.input(f"{self.label}{name}", dims, _dtype(array))
        return self._known(place, array, rough=rough)

    def constant(self, array: Any, dtype: str = "int32") -> int:
        """A constant; floats must be whole numbers or such that float32 has."""
        data = np.asarray(array, dtype)
        place = self.maker.constant(f"{self.label}constant{len(self.maker.nodes)}", data)
        self.stored[place] = self.arrays[place] = _wide(data)
        return place

    def capture(self, outer: int) -> int:
        """A value of the parent."""
        assert self.parent is not None
        if outer not in self.captured:
            place = self.maker.capture(self.parent.maker.nodes[outer].name)
            self.captured[outer] = place
            self._known(place, self.parent.arrays[outer], rough=outer in self.parent.rough)
        return self.captured[outer]

    def op(
        self,
        op: str,
        operands: Sequence[int],
        function: Callable[..., Any],
        *,
        outputs: int = 1,
        rough: bool = False,
        **attrs: Any,
    ) -> list[int]:
        """Add an operator and return its results, unless NumPy or their sizes say no."""
        try:
            results = _results(function, [self.arrays[i] for i in operands])
        except (ValueError, IndexError, ZeroDivisionError) as err:
            raise Unfit(op) from err
        if any(y.size > MOST_ELEMENTS or y.ndim > 6 for y in results):
            raise Unfit(op)
        name = f"{self.label}{op}{len(self.maker.nodes)}"
        first = self.maker.op(op, *operands, name=name, outputs=outputs, **attrs)
        places = tuple(range(first, first + outputs))
        self.steps.append(Step(tuple(operands), places, function))
        for place, y in zip(places, results, strict=True):
            self._known(place, y, rough=rough or not self.rough.isdisjoint(operands))
        return list(places)

    def pick(
        self,
        *dtypes: str,
        exact: bool = False,
        least: int = 0,
        most: int = 6,
        fits: Callable[[Array], bool] = lambda _: True,
    ) -> int:
        """A value of such a type, rank and shape, rather a late one."""
        fit = [
            place
            for place, x in self.arrays.items()
            if (not dtypes or _dtype(x) in dtypes) and least <= x.ndim <= most
            if not (exact and place in self.rough) and fits(x)
        ]
        if not fit:
            raise Unfit("no value")
        return int(fit[-1] if self.g.chance(0.5) else self.g.pick(*fit))

    def dtype(self, place: int) -> str:
        """The type of a value in the graph."""
        return _dtype(self.arrays[place])

    def run(self, feeds: Mapping[int, Array]) -> dict[int, Array]:
        """All values for other inputs and captured values; raises where NumPy does."""
        values = {**self.stored, **{i: _wide(x) for i, x in feeds.items()}}
        for step in self.steps:
            results = _results(step.function, [values[i] for i in step.operands])
            values |= dict(zip(step.results, results, strict=True))
        return values

    def _known(self, place: int, array: Array, *, rough: bool) -> int:
        self.arrays[place] = _wide(array)
        if rough:
            self.rough.add(place)
        return place


def _results(function: Callable[..., Any], operands: Sequence[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        result = function(*operands)
    arrays = result if isinstance(result, (list, tuple)) else [result]
    arrays = [np.asarray(y) for y in arrays]
    if any(y.dtype.kind == "f" and not np.isfinite(y).all() for y in arrays):
        raise ValueError("not finite")
    return [y.astype(np.int32) if y.dtype.kind in "bi" else y for y in arrays]


def _dtype(x: Array) -> str:
    return "float32" if x.dtype.kind == "f" else "int32"


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" else x
