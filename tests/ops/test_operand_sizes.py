"""Operands that must have one element, or fit another one, where only a run tells their sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot.runtime.errors import InputError
from tests.ops.test_control_flow import GraphMaker, branch, compiled
from tests.support.cases import Array, Case, feeds, run_case, write_cases

X = np.array([1, -2, 3], np.float32)


def clip(g: GraphMaker, x: int, n: int) -> int:
    return g.op("Clip", x, g.op("Cast", n, to="Float"))


def choice(g: GraphMaker, x: int, n: int) -> int:
    negative = branch(lambda b: b.op("Neg", b.capture("x")))
    return g.op("If", n, then_branch=negative, else_branch=branch(lambda b: b.capture("x")))


def repeated(g: GraphMaker, x: int, n: int) -> int:
    """``n`` times, and as long as ``n`` is not 0."""
    body = GraphMaker()
    body.input("number", (), "int32")
    condition, value = body.input("condition", (None,), "int32"), body.input("value", (3,))
    twice = body.op("Add", value, value)
    return g.op("Loop", n, n, x, body=body.graph(condition, twice))


def at(g: GraphMaker, x: int, n: int) -> int:
    return g.op("SequenceAt", g.op("SequenceConstruct", x, g.op("Neg", x)), n)


def counted(g: GraphMaker, x: int, n: int) -> int:
    del x
    return g.op("Range", n, g.constant("end", np.int32(7)), n)


def triangle(g: GraphMaker, x: int, n: int) -> int:
    return g.op("Trilu", g.op("Unsqueeze", x, g.constant("axis", np.int32([0]))), n, upper=True)


def boxes(g: GraphMaker, x: int, n: int) -> int:
    del x
    corners = np.float32([[[0, 0, 1, 1], [5, 5, 6, 6]]])
    scores = g.constant("scores", np.float32([[[0.1, 0.9]]]))
    order = "TopLeftBottomRight"
    return g.op("NonMaxSuppression", g.constant("boxes", corners), scores, n, box_order=order)


@pytest.mark.parametrize(
    ("build", "what", "number", "expected"),
    [
        (clip, "a bound", -1, [1, -1, 3]),
        (choice, "the condition", 1, -X),
        (choice, "the condition", 0, X),
        (repeated, "the trip count", 2, 4 * X),
        (at, "the position", -1, -X),
        (counted, "each of start, limit and delta", 3, [3, 6]),
        (triangle, "k", 1, [[0, -2, 3]]),
        (boxes, "the limit of count", 1, [[0, 0, 1]]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_one_element(
    build: Callable[[GraphMaker, int, int], int],
    what: str,
    number: int,
    expected: Any,
    tmp_path: Path,
) -> None:
    maker = GraphMaker()
    x, n = maker.input("x", (3,)), maker.input("n", ("count",), "int32")
    with compiled(maker.graph(build(maker, x, n), x), tmp_path) as model:

        def run(*numbers: int) -> Array:
            result: Array = model(X, np.array(numbers, np.int32))[0]
            return result

        np.testing.assert_array_equal(run(number), expected)
        for wrong in ([], [number, number]):
            with pytest.raises(
                InputError, match=f"{what} must have one element; sizes count and 1 differ"
            ):
                run(*wrong)
        np.testing.assert_array_equal(run(number), expected)


def floats(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def small(*shape: int) -> Array:
    return np.ones(shape, np.uint8)


@pytest.mark.parametrize(
    ("op", "inputs", "what"),
    [
        ("PRelu", [floats(2, 1), floats(3)], "sizes of input and slope"),
        ("Gemm", [floats(2, 3), floats(3, 1), floats(5)], "sizes of product and addend"),
        ("Gemm", [floats(1, 3), floats(3, 4), floats(5, 1)], "sizes of product and addend"),
        ("LayerNormalization", [floats(2, 1), floats(5)], "sizes of input and scale"),
        ("LayerNormalization", [floats(2, 1), floats(1), floats(5)], "sizes of input and bias"),
        ("MatMulInteger", [small(1, 3), small(3, 4), small(7)], "numbers of rows and zero points"),
        (
            "MatMulInteger",
            [small(2, 3), small(3, 1), None, small(5)],
            "numbers of columns and zero points",
        ),
        (
            "MatMulInteger",
            [small(2, 1, 3), small(3, 4), small(2, 7, 1)],
            "numbers of rows and zero points",
        ),
    ],
)
def test_an_operand_that_stretches_enlarges_no_other(
    op: str, inputs: list[Array | None], what: str
) -> None:
    case = Case("large", op, inputs, [])
    with pytest.raises(rten_aot.ShapeError, match=f"{what} 1 and [0-9] differ"):
        run_case(case)
    with pytest.raises(InputError, match=f"{what} .* differ"):
        run_case(case, "dynamic")


@pytest.mark.parametrize(
    ("op", "inputs", "what"),
    [
        ("PRelu", [floats(3), floats(2, 3)], "sizes of input and slope"),
        ("Gemm", [floats(2, 3), floats(3, 1), floats(1, 1, 1)], "sizes of product and addend"),
        ("LayerNormalization", [floats(3), floats(1, 3)], "sizes of input and scale"),
    ],
)
def test_an_operand_that_stretches_adds_no_axes(op: str, inputs: list[Array], what: str) -> None:
    with pytest.raises(rten_aot.ShapeError, match=f"{what}: .* has more axes than"):
        run_case(Case("long", op, inputs, []))


VECTORS = [
    Case("tile", "Tile", [floats(2, 3), np.int32([2, 1])], [floats(4, 3)]),
    Case("tile-number", "Tile", [floats(), np.zeros(0, np.int32)], [floats()]),
    Case("pad", "Pad", [floats(2, 3), np.int32([0, 1, 2, -2])],
         [np.float32([[0, 1], [0, 1], [0, 0], [0, 0]])]),
    Case("pad-axis", "Pad", [floats(2, 3), np.int32([1, 2]), None, np.int32([0])],
         [np.pad(floats(2, 3), [(1, 2), (0, 0)])], constant=[3]),
    Case("split", "Split", [floats(2, 3), np.int32([1, 2])], [floats(2, 1), floats(2, 2)],
         {"axis": 1}, outputs=2),
    Case("resize", "Resize", [floats(1, 1, 2, 3), None, None, np.int64([1, 1, 4, 5])],
         [floats(1, 1, 4, 5)], {"mode": "nearest"}),
    Case("scale", "Resize", [floats(1, 1, 2, 3), None, np.float32([1, 1, 2, 1])],
         [floats(1, 1, 4, 3)], {"mode": "nearest"}),
]  # fmt: skip


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: str(case.id))
def test_vectors_whose_length_the_other_operands_tell(case: Case, tmp_path: Path) -> None:
    """Their own is known at run time only, where another one is an error."""
    place = max(i for i, x in enumerate(case.inputs) if x is not None and i not in case.constant)
    right = feeds([case], "dynamic")
    name, vector = f"c0_x{place}", case.inputs[place]
    assert vector is not None
    wrong = [np.append(vector, vector.dtype.type(1)), *([vector[1:]] if vector.size else [])]
    write_cases([case], "dynamic", tmp_path / "m.rten")
    library = rten_aot.compile(tmp_path / "m.rten", target="llvm -mcpu=native")
    with rten_aot.load(library) as model:
        for _ in range(2):
            for got, want in zip(model.run(right).values(), case.want(), strict=True):
                np.testing.assert_array_equal(got, want)
            for other in wrong:
                with pytest.raises(InputError, match=f'in node "{case.id}" .* sizes .* differ'):
                    model.run({**right, name: other})
