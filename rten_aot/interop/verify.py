"""A compiled model against ONNX Runtime: which outputs differ, and where that begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rten_aot.format import Model
from rten_aot.interop.compare import Array, Comparison, compare
from rten_aot.interop.observe import Place, places, random_values, with_outputs
from rten_aot.interop.reference import run_reference

RunCompiled: TypeAlias = Callable[[Model], Sequence[Array]]
"""Compiles a model and runs it on the inputs in question; gives the outputs in order."""


@dataclass(frozen=True)
class Difference:
    """The first value in graph order that differs.

    ``alone`` says that it differs only if the values before it are not outputs too: then what is
    wrong is likely how operators were put together.
    """

    place: Place
    got: Array
    want: Array
    comparison: Comparison
    alone: bool


def compare_outputs(
    model: Model, got: Sequence[Array], want: Sequence[Array], tolerance: float
) -> list[Comparison | None]:
    """A comparison for each output; None for those that depend on random numbers."""
    random = random_values(model.graph)
    return [
        None if index in random else compare(g, w, tolerance)
        for index, g, w in zip(model.graph.outputs, got, want, strict=True)
    ]


def first_difference(
    model: Model,
    inputs: Sequence[Array],
    run_compiled: RunCompiled,
    tolerance: float,
    threads: int = 0,
) -> Difference | None:
    """The first value that differs; None if none does.

    All values are made outputs. If none differs then, the model is cut off behind values instead,
    halving their number each time.

    Raises:
        CompileError: a model with these outputs cannot be compiled or run by one of both.
    """
    candidates = places(model.graph)
    if not candidates:
        return None
    observed = with_outputs(model, [place.index for place in candidates])
    want = run_reference(observed, inputs, threads)
    got = run_compiled(observed)
    for place, mine, theirs in zip(candidates, got, want, strict=True):
        comparison = compare(mine, theirs, tolerance)
        if not comparison.equal:
            return Difference(place, mine, theirs, comparison, alone=False)
    return _halving(model, candidates, want, run_compiled, tolerance)


def _halving(
    model: Model,
    candidates: Sequence[Place],
    want: Sequence[Array],
    run_compiled: RunCompiled,
    tolerance: float,
) -> Difference | None:
    found = None
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        (got,) = run_compiled(with_outputs(model, [candidates[middle].index]))
        comparison = compare(got, want[middle], tolerance)
        if comparison.equal:
            low = middle + 1
        else:
            found = Difference(candidates[middle], got, want[middle], comparison, alone=True)
            high = middle
    return found
