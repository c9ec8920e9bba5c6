"""Which value is said to be the first that differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rten_aot.format import Model
from rten_aot.interop.observe import places, random_values, sequences
from rten_aot.interop.reference import run_reference
from rten_aot.interop.verify import RunCompiled, compare_outputs, first_difference
from tests.interop.models import Array, Op, graph, model

F: Any = ("float32", (2,))
X = np.array([1, 2], np.float32)

CHAIN = model(
    {"x": F},
    {},
    [Op("Neg", "x", "a"), Op("Exp", "a", "b"), Op("Add", "b x", "c"), Op("Abs", "c", "d")],
    "d",
)


def engine(wrong: Sequence[str], *, only_alone: bool = False) -> RunCompiled:
    """Stands in for a compiled model; values of the names in ``wrong`` are off by 1."""

    def run(made: Model) -> list[Array]:
        outputs = run_reference(made, [X], threads=1)
        names = [made.graph.nodes[i].name for i in made.graph.outputs]
        spoilt = not only_alone or len(names) == 1
        return [
            y + 1 if spoilt and name in wrong else y for name, y in zip(names, outputs, strict=True)
        ]

    return run


def test_the_first_in_graph_order() -> None:
    found = first_difference(CHAIN, [X], engine("bcd"), 1e-4)
    assert found is not None
    assert (found.place.node.name, found.place.output, found.alone) == ("b", 0, False)
    np.testing.assert_allclose(found.got - found.want, 1, rtol=1e-6)


def test_what_vanishes_when_looked_at() -> None:
    found = first_difference(CHAIN, [X], engine("cd", only_alone=True), 1e-4)
    assert found is not None
    assert (found.place.node.name, found.alone) == ("c", True)


def test_nothing_to_be_found() -> None:
    assert first_difference(CHAIN, [X], engine(""), 1e-4) is None
    empty = model({"x": F}, {}, [], "x")
    assert first_difference(empty, [X], engine(""), 1e-4) is None


def test_random_numbers_are_not_compared() -> None:
    attrs = {"low": 0.0, "high": 1.0, "seed": None}
    branch = graph({}, {}, [Op("RandomUniformLike", "x", "r", attrs)], "r", captures="x")
    made = model(
        {"x": F, "c": ("int32", ())},
        {},
        [
            Op("RandomUniformLike", "x", "a", attrs),
            Op("Add", "a x", "b"),
            Op("If", "c", "d", {"then_branch": branch, "else_branch": branch}),
            Op("Neg", "x", "e"),
        ],
        "b e d",
    )
    names = {made.graph.nodes[i].name for i in random_values(made.graph)}
    assert names == {"a", "b", "d"}
    assert [place.node.name for place in places(made.graph)] == ["e"]
    assert [c is None for c in compare_outputs(made, [X, X, X], [X, X, X], 0)] == [
        True,
        False,
        True,
    ]


def test_sequences_are_not_compared() -> None:
    branch = graph({}, {}, [Op("Identity", "s", "t")], "t", captures="s")
    made = model(
        {"x": F, "c": ("int32", ())},
        {"n": 0},
        [
            Op("SequenceConstruct", "x", "s"),
            Op("If", "c", "u", {"then_branch": branch, "else_branch": branch}),
            Op("Identity", "u", "v"),
            Op("SequenceAt", "v n", "y"),
        ],
        "y",
    )
    assert {made.graph.nodes[i].name for i in sequences(made.graph)} == {"s", "u", "v"}
    assert [place.node.name for place in places(made.graph)] == ["y"]
    np.testing.assert_array_equal(run_reference(made, [X, np.array(1, np.int32)])[0], X)
