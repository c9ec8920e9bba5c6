"""Shapes and dimensions that the user fixes, and what is refused."""

from __future__ import annotations

import pytest

from rten_aot.errors import ShapeError
from rten_aot.format.graph import Dim, Graph, Value
from rten_aot.importer.signature import Signature, unique_names


def graph(*shapes: tuple[Dim, ...] | None, names: str = "xyz") -> Graph:
    values = [Value(n, s, "float32") for n, s in zip(names, shapes, strict=False)]
    return Graph(values, tuple(range(len(values))), ())


def test_names_are_made_unique() -> None:
    assert unique_names(["a", "", "a", "a_2", ""], "input") == [
        "a",
        "input_1",
        "a_2",
        "a_2_2",
        "input_4",
    ]


def test_declared_shapes_stand() -> None:
    signature = Signature(graph(("n", 3, None), (None, "n")), None, None)
    assert [t.shape for t in signature.inputs] == [("n", 3, None), (None, "n")]
    first, second = (p.ty.shape.values for p in signature.params)
    assert first[0].same_as(second[1])
    assert not first[2].same_as(second[0])


def test_a_dimension_is_fixed_everywhere() -> None:
    signature = Signature(graph(("n", 3), ("n", "m")), None, {"n": 2})
    assert [t.shape for t in signature.inputs] == [(2, 3), (2, "m")]


def test_a_shape_fixes_the_names_it_replaces() -> None:
    signature = Signature(graph(("n", "m"), ("m", "n")), {"x": [4, "k"]}, None)
    assert [t.shape for t in signature.inputs] == [(4, "k"), ("m", 4)]


def test_a_free_size_in_a_shape_is_independent() -> None:
    signature = Signature(graph((5, "m"), ("m",)), {"x": [None, None]}, None)
    assert [t.shape for t in signature.inputs] == [(None, None), ("m",)]


def test_a_scalar_shape() -> None:
    assert Signature(graph(None), {"x": []}, None).inputs[0].shape == ()


@pytest.mark.parametrize(
    ("shapes", "dims", "message"),
    [
        ({"x": [1, 2], "y": [3, 1]}, {}, 'dimension "n" is given two values, 1 and 3'),
        ({"x": [1, 2]}, {"n": 7}, 'dimension "n" is given two values, 1 and 7'),
        ({"x": [1, 2, 3]}, {}, "rank 3; the model's is ['n', 'm'], rank 2"),
        ({"x": [-1, 2]}, {}, "has a negative size"),
        ({}, {"n": -4}, 'dimension "n" cannot be -4'),
        ({}, {"batch": 4}, 'the model has no dimension "batch"; it has: "m", "n"'),
        ({"q": [1]}, {}, 'the model has no input "q"; it has: "x", "y"'),
    ],
)
def test_contradictions(shapes: dict[str, list[Dim]], dims: dict[str, int], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Signature(graph(("n", "m"), ("n", 1)), shapes, dims)
    assert message in str(caught.value)


def test_an_input_without_shape_needs_one() -> None:
    with pytest.raises(ShapeError, match=r'input "x" has no shape in the file\nhint: give one'):
        Signature(graph(None), None, None)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(ShapeError, match='did you mean "batch"'):
        Signature(graph(("batch",)), None, {"bach": 1})
