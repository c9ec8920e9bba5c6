"""Draws random shapes, numbers and choices for generated cases."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.cases import Array, Case

SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64, 65]
SMALL = SIZES[:18]
DTYPES = ("float32", "int32", "int8", "uint8")


class Generator:
    """A source of cases; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = np.random.default_rng(seed)

    def pick(self, *values: Any) -> Any:
        """One of the values."""
        return self.random.choice(values)

    def chance(self, probability: float) -> bool:
        """True this often."""
        return self.random.random() < probability

    def some(self, count: int, least: int = 0) -> list[int]:
        """At least so many of the numbers below ``count``, in any order."""
        return self.random.sample(range(count), self.random.randint(least, count))

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.random.randrange(-rank, rank)

    def sizes(self, largest_rank: int = 4, *, smallest_rank: int = 1) -> list[int]:
        """A shape without zeros: the fewer axes, the longer they may be."""
        rank = self.random.randint(smallest_rank, largest_rank)
        return [self.pick(*(SMALL if rank > 2 else [*SIZES, 200, 1000])) for _ in range(rank)]

    def shape(self, least: int = 0, most: int = 6, *, zeros: bool = True) -> list[int]:
        """A shape of a rank between ``least`` and ``most`` that may have sizes of 0."""
        rank = self.random.randint(least, most)
        choice = [1, 2, 3, 5] if rank > 4 else [1, 2, 3, 4, 5, 8] if rank > 2 else SIZES
        shape = [self.pick(*choice) for _ in range(rank)]
        if zeros and rank and self.chance(0.08):
            shape[self.random.randrange(rank)] = 0
        return shape

    def array(self, *shape: int) -> npt.NDArray[np.float32]:
        """Normally distributed floats."""
        return self.numbers.normal(size=shape).astype(np.float32)

    def values(self, shape: list[int], *dtypes: str) -> Array:
        """Numbers of one of the types: integers of all sizes, floats with a few that are not."""
        dtype = self.pick(*(dtypes or DTYPES))
        if dtype == "float32":
            x = self.array(*shape)
            special = np.float32([np.nan, np.inf, -np.inf, -0.0])
            places = self.numbers.random(shape) < (0.05 if self.chance(0.3) else 0)
            x[places] = self.numbers.choice(special, int(places.sum()))
            return x
        info = np.iinfo(dtype)
        return self.numbers.integers(info.min, info.max, shape, dtype, endpoint=True)

    def at_run_time(self, case: Case, *places: int) -> Case:
        """The case with vectors as run-time inputs, of known lengths, in some of all draws."""
        given = [case.inputs[i] for i in places]
        if self.chance(0.6) or any(x is None or x.shape == (0,) for x in given):
            return case
        fixed = [(i, axis) for i, x in zip(places, given, strict=True) for axis in range(x.ndim)]
        stored = [i for i in case.constant if i not in places]
        return replace(case, constant=stored, fixed=[*case.fixed, *fixed])
