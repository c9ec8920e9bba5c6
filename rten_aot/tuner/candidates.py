"""Which choices are tried for a problem, in what order: those next to the cost model's first."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice, faults
from rten_aot.targets.common.problems import Problem

Options: TypeAlias = Mapping[str, Sequence[Any]]
"""The values of each field that come into question, in their order."""

_NEAR = 2
"""How many values away from the cost model's a neighbour is at most."""
_VECTORS = range(1, 7)
_ROWS = range(1, 15)
_FEWEST_ROWS = 3
"""Register tiles of fewer rows load more than they multiply."""
_RUNS = tuple(1 << power for power in range(7))
_BLOCK_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_USUAL_BLOCK = 64
"""Tiles of a block where the cost model has none."""
_MANY = 1 << 20
"""Rows or tiles where only a run knows how many there are."""
_LEFT_OPEN = 0.5
"""How often a random choice leaves a field to the cost model."""
_GIVE_UP = 100
"""After so many random choices in a row that were seen before there are taken to be no others."""


def candidates(machine: Machine, problem: Problem, default: Choice) -> Iterator[Choice]:
    """Choices that can be tried for a problem, without repetition; always the same ones.

    ``default`` is what the cost model chose. First come choices that differ from it in one field,
    the nearest ones first, then random ones.
    """
    if default.block is not None and problem.tiles is not None:
        default = dataclasses.replace(default, block=min(default.block, problem.tiles))
    options = _options(machine, problem, default)
    seen = {Choice()}
    repeated = 0
    for fields in itertools.chain(_neighbours(options, default), _random(options, problem.key)):
        # What the cost model chooses anyway is left to it.
        choice = _choice({f: v for f, v in fields.items() if v != getattr(default, f)})
        repeated += 1
        if choice not in seen:
            seen.add(choice)
            if not any(faults(machine, problem, choice)):
                repeated = 0
                yield choice
        if repeated > _GIVE_UP:
            return


def _options(machine: Machine, problem: Problem, default: Choice) -> Options:
    fewest = 1 if problem.kind == "depthwise" else _FEWEST_ROWS
    most = _MANY if problem.rows is None else problem.rows
    options: dict[str, Sequence[Any]] = {}
    if problem.allows_winograd:
        options["algorithm"] = ("direct", "winograd")
    options["width"] = _widths(machine, problem)
    options["rows"] = [count for count in _ROWS if fewest <= count <= most]
    if default.ahead is not None:
        options["ahead"] = (False, True)
    if problem.allows_winograd:
        options["block"] = _blocks(problem, default)
    if default.group is not None:
        options["group"] = _groups(problem, default)
    if default.run is not None:
        tiles = -(-most // (default.rows or 1))
        options["run"] = [run for run in _RUNS if run <= tiles]
    return {field: values for field, values in options.items() if values}


def _widths(machine: Machine, problem: Problem) -> list[int]:
    """Whole vectors, or a part of one for fewer columns."""
    vector, count = machine.lanes("float32"), problem.columns
    if count is not None and count < vector:
        return [1 << power for power in range(vector.bit_length())]
    most = None if count is None else -(-count // vector)
    return [vectors * vector for vectors in _VECTORS if most is None or vectors <= most]


def _blocks(problem: Problem, default: Choice) -> list[int]:
    """Parts and multiples of the usual block, up to all tiles."""
    most = _MANY if problem.tiles is None else max(1, problem.tiles)
    usual = min(default.block or _USUAL_BLOCK, most)
    return sorted({min(most, max(1, int(usual * factor))) for factor in _BLOCK_FACTORS})


def _groups(problem: Problem, default: Choice) -> list[int]:
    """From one block of channels to all of them, twice as many each time."""
    block, most = default.width or 1, problem.columns or _MANY
    sizes = [block]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-1])
    return sizes


def _neighbours(options: Options, default: Choice) -> Iterator[dict[str, Any]]:
    for distance in range(_NEAR + 1):
        for field, values in options.items():
            own = getattr(default, field)
            if own is None:
                continue
            place = _nearest(values, own)
            for at in sorted({place - distance, place + distance}):
                if 0 <= at < len(values):
                    yield {field: values[at]}


def _nearest(values: Sequence[Any], own: Any) -> int:
    if own in values:
        return values.index(own)
    return min(range(len(values)), key=lambda i: float(abs(values[i] - own)))


def _random(options: Options, key: str) -> Iterator[dict[str, Any]]:
    """Without end, the same ones for a key."""
    rng = random.Random(key)
    while True:
        drawn = {field: rng.choice(values) for field, values in options.items()}
        yield {f: value for f, value in drawn.items() if rng.random() >= _LEFT_OPEN}


def _choice(fields: Mapping[str, Any]) -> Choice:
    """The choice with these fields; there are blocks with one algorithm only."""
    if "block" not in fields:
        return Choice(**fields)
    if fields.get("algorithm") == "direct":
        return Choice(**{f: value for f, value in fields.items() if f != "block"})
    return Choice(**{**fields, "algorithm": "winograd"})
