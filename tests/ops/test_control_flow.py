"""If: conditions known at compile time and at run time, captures, nesting, sizes that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rten_aot
from rten_aot.errors import ShapeError, UnsupportedOpError
from rten_aot.format.graph import Constant, Dim, Graph, Node, OpNode, Value
from tests.support.rten_writer import write_model

Array = npt.NDArray[Any]


@dataclass
class GraphMaker:
    """Collects nodes; every method returns the index of the value it makes."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    captures: list[int] = field(default_factory=list)

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def input(self, name: str, shape: Sequence[Dim], dtype: Any = "float32") -> int:
        self.inputs.append(self._add(Value(name, tuple(shape), dtype)))
        return self.inputs[-1]

    def capture(self, name: str) -> int:
        self.captures.append(self._add(Value(name, None, None)))
        return self.captures[-1]

    def constant(self, name: str, data: Any) -> int:
        return self._add(Constant(name, np.asarray(data)))

    def op(self, op: str, *inputs: int, name: str = "", outputs: int = 1, **attrs: object) -> int:
        label = name or f"{op}_{len(self.nodes)}"
        results = tuple(self._add(Value(f"{label}_{i}", None, None)) for i in range(outputs))
        self._add(OpNode(label, op, inputs, results, attrs))
        return results[0]

    def graph(self, *outputs: int) -> Graph:
        return Graph(self.nodes, tuple(self.inputs), outputs, tuple(self.captures))


def branch(build: Callable[[GraphMaker], int]) -> Graph:
    maker = GraphMaker()
    return maker.graph(build(maker))


def compiled(graph: Graph, folder: Path) -> rten_aot.runtime.Model:
    path = write_model(graph, folder / "model.rten")
    return rten_aot.load(rten_aot.compile(path, target="llvm -mcpu=native", opt_level=3))


def with_if(then: Graph, otherwise: Graph, shape: Sequence[Dim]) -> Graph:
    """x, c -> (If(c), -If(c), x)."""
    main = GraphMaker()
    x = main.input("x", shape)
    condition = main.input("c", (), "int32")
    chosen = main.op("If", condition, then_branch=then, else_branch=otherwise, name="choice")
    return main.graph(chosen, main.op("Neg", chosen), x)


@pytest.mark.parametrize("shape", [(2, 3), ("rows", 3), ("rows", None)])
def test_a_branch_computes_and_one_returns_a_capture_untouched(
    shape: tuple[Dim, ...], tmp_path: Path
) -> None:
    then = branch(lambda g: g.op("Relu", g.capture("x")))
    otherwise = branch(lambda g: g.capture("x"))
    model = compiled(with_if(then, otherwise, shape), tmp_path)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    for condition, expected in ((1, np.maximum(x, 0)), (0, x), (7, np.maximum(x, 0))):
        chosen, negated, same = model(x, condition)
        np.testing.assert_array_equal(chosen, expected)
        np.testing.assert_array_equal(negated, -expected)
        np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("shape", [(2, 3), ("rows", 3), ("rows", None)])
def test_reshape_chains_in_both_branches(shape: tuple[Dim, ...], tmp_path: Path) -> None:
    def chain(first: list[int], second: list[int]) -> Graph:
        def build(g: GraphMaker) -> int:
            inner = g.op(
                "Reshape", g.capture("x"), g.constant("a", np.int32(first)), allow_zero=False
            )
            return g.op("Reshape", inner, g.constant("b", np.int32(second)), allow_zero=False)

        return branch(build)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for k, (first, second) in enumerate((([6], [3, 2]), ([-1], [3, -1]))):
        (tmp_path / str(k)).mkdir()
        graph = with_if(chain(first, second), chain([3, -1], [-1, 2]), shape)
        model = compiled(graph, tmp_path / str(k))
        for condition in (0, 1):
            result, negated, same = model(x, condition)
            np.testing.assert_array_equal(result, x.reshape(3, 2))
            np.testing.assert_array_equal(negated, -x.reshape(3, 2))
            np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("shape", [(2, 3), ("rows", 3), ("rows", None)])
def test_branches_with_many_results(shape: tuple[Dim, ...], tmp_path: Path) -> None:
    """One value twice, a constant, a captured value untouched and one that is computed."""
    then, otherwise = GraphMaker(), GraphMaker()
    positive = then.op("Relu", then.capture("x"))
    chosen = then.graph(positive, positive, then.constant("k", np.float32([7, 8])), 0)
    same = otherwise.capture("x")
    constant, negative = otherwise.constant("k", np.float32([1, 2])), otherwise.op("Neg", same)
    other = otherwise.graph(same, same, constant, negative)
    main = GraphMaker()
    x, condition = main.input("x", shape), main.input("c", (), "int32")
    first = main.op("If", condition, then_branch=chosen, else_branch=other, outputs=4)
    model = compiled(main.graph(*range(first, first + 4), x), tmp_path)
    data = np.float32([[1, -2, 3], [-4, 5, -6]])
    for value, wanted in (
        (1, [np.maximum(data, 0)] * 2 + [np.float32([7, 8]), data, data]),
        (0, [data, data, np.float32([1, 2]), -data, data]),
    ):
        for got, want in zip(model(data, value), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_constants_and_sizes_are_captured(tmp_path: Path) -> None:
    main = GraphMaker()
    main.input("x", ("n",))
    condition = main.input("c", (), "int32")
    main.constant("w", np.float32(10))
    shape = main.op("Shape", 0, name="shape")
    assert main.nodes[shape].name == "shape_0"
    then = branch(lambda g: g.op("Mul", g.capture("x"), g.capture("w")))
    otherwise = branch(
        lambda g: g.op(
            "Add",
            g.capture("x"),
            g.op("Cast", g.capture("shape_0"), to="Float"),
        )
    )
    chosen = main.op("If", condition, then_branch=then, else_branch=otherwise)
    model = compiled(main.graph(chosen), tmp_path)
    for n in (1, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model(x, 1)[0], x * 10)
        np.testing.assert_array_equal(model(x, 0)[0], x + n)


def test_a_known_condition_chooses_at_compile_time(tmp_path: Path) -> None:
    main = GraphMaker()
    main.input("x", (4,))
    condition = main.constant("yes", np.int32(1))
    then = branch(lambda g: g.op("Neg", g.capture("x")))
    unknown = branch(lambda g: g.op("NonZero", g.capture("x")))
    chosen = main.op("If", condition, then_branch=then, else_branch=then)
    model = compiled(main.graph(chosen), tmp_path)
    np.testing.assert_array_equal(model(np.ones(4, np.float32))[0], -np.ones(4))
    del unknown


def test_nested(tmp_path: Path) -> None:
    inner_then = branch(lambda g: g.op("Abs", g.capture("x")))
    inner_else = branch(lambda g: g.op("Neg", g.capture("y_0")))

    def outer(g: GraphMaker) -> int:
        g.op("Relu", g.capture("x"), name="y")
        return g.op("If", g.capture("d"), then_branch=inner_then, else_branch=inner_else)

    main = GraphMaker()
    main.input("x", ("n", 2))
    main.input("c", (1,), "int32")
    main.input("d", (), "int32")
    otherwise = branch(lambda g: g.capture("x"))
    chosen = main.op("If", 1, then_branch=branch(outer), else_branch=otherwise)
    model = compiled(main.graph(chosen), tmp_path)
    x = np.float32([[1, -2], [-3, 4], [0, -1]])
    np.testing.assert_array_equal(model(x, [1], 1)[0], np.abs(x))
    np.testing.assert_array_equal(model(x, [1], 0)[0], -np.maximum(x, 0))
    np.testing.assert_array_equal(model(x, [0], 1)[0], x)


@pytest.mark.parametrize(
    ("op", "attrs", "operands", "want"),
    [
        ("Cast", {"to": "Float"}, [], np.float32([[1], [-2], [3]])),
        ("Cast", {"to": "Int32"}, [], np.int32([[1], [-2], [3]])),
        ("Identity", {}, [], np.int32([[1], [-2], [3]])),
        ("Reshape", {"allow_zero": False}, [[-1]], np.int32([1, -2, 3])),
        ("Flatten", {"axis": 0}, [], np.int32([[1, -2, 3]])),
        ("Squeeze", {}, [[1]], np.int32([1, -2, 3])),
        ("Unsqueeze", {}, [[0]], np.int32([[[1], [-2], [3]]])),
        ("Transpose", {"perm": (1, 0)}, [], np.int32([[1, -2, 3]])),
        ("Slice", {}, [[1], [9], [0]], np.int32([[-2], [3]])),
        ("Expand", {}, [[1]], np.int32([[1], [-2], [3]])),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("untouched", [False, True])
@pytest.mark.parametrize("shape", [(3, 1), ("n", 1)])
def test_what_only_branches_use(
    op: str,
    attrs: dict[str, Any],
    operands: list[list[int]],
    want: Array,
    untouched: bool,
    shape: Any,
    tmp_path: Path,
) -> None:
    """The result of an operator that may give its operand's memory."""
    main = GraphMaker()
    main.input("x", shape, "int32")
    main.input("c", (), "int32")
    given = [main.constant(f"k{i}", np.int32(values)) for i, values in enumerate(operands)]
    main.op(op, 0, *given, name="used", **attrs)
    same = branch(lambda g: g.capture("used_0"))
    then = same if untouched else branch(lambda g: g.op("Neg", g.capture("used_0")))
    otherwise = branch(lambda g: g.op("Identity", g.capture("used_0")))
    chosen = main.op("If", 1, then_branch=then, else_branch=otherwise)
    model = compiled(main.graph(chosen, chosen), tmp_path)
    x = np.int32([[1], [-2], [3]])
    for condition in (0, 1):
        for result in model(x, condition):
            assert result.dtype == want.dtype
            sign = -1 if condition and not untouched else 1
            np.testing.assert_array_equal(result, sign * want)


@pytest.mark.parametrize("shape", [(2, 3), ("n", None)])
def test_nested_with_sizes_that_differ(shape: tuple[Dim, ...], tmp_path: Path) -> None:
    """Values of both enclosing graphs, captured and joined inside."""
    inner = branch(lambda g: g.op("Concat", g.capture("x"), g.capture("y_0"), axis=0))
    other = branch(lambda g: g.capture("x"))

    def outer(g: GraphMaker) -> int:
        g.op("Relu", g.capture("x"), name="y")
        chosen = g.op("If", g.capture("d"), then_branch=inner, else_branch=other)
        return g.op("Neg", chosen)

    thrice = branch(lambda g: g.op("Concat", *[g.capture("x")] * 3, axis=0))
    main = GraphMaker()
    main.input("x", shape)
    main.input("c", (), "int32")
    main.input("d", (), "int32")
    chosen = main.op("If", 1, then_branch=branch(outer), else_branch=thrice)
    total = main.op("ReduceSum", chosen, axes=(0,), keep_dims=False)
    model = compiled(main.graph(chosen, total), tmp_path)
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    joined = -np.concatenate([x, np.maximum(x, 0)])
    for c, d, want in ((1, 1, joined), (1, 0, -x), (0, 1, np.concatenate([x, x, x]))):
        got, summed = model(x, c, d)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(summed, want.sum(0))


@pytest.mark.parametrize("shape", [(4,), ("n",)])
def test_sizes_that_differ_between_branches(shape: tuple[Dim, ...], tmp_path: Path) -> None:
    then = branch(lambda g: g.op("Concat", g.capture("x"), g.capture("x"), axis=0))
    otherwise = branch(lambda g: g.op("Neg", g.capture("x")))
    model = compiled(with_if(then, otherwise, shape), tmp_path)
    for values in ([1, 2, 3, 4], [5, 6, 7, 8]):
        x = np.float32(values)
        doubled = np.concatenate([x, x])
        for condition, expected in ((1, doubled), (0, -x), (1, doubled)):
            chosen, negated, same = model(x, condition)
            np.testing.assert_array_equal(chosen, expected)
            np.testing.assert_array_equal(negated, -expected)
            np.testing.assert_array_equal(same, x)


def test_results_of_sizes_that_differ_keep_their_memory(tmp_path: Path) -> None:
    """Other values are computed between the If and the use of its result."""
    main = GraphMaker()
    x, condition = main.input("x", (4,)), main.input("c", (), "int32")
    chosen = main.op(
        "If",
        condition,
        then_branch=branch(lambda g: g.op("Concat", g.capture("x"), g.capture("x"), axis=0)),
        else_branch=branch(lambda g: g.op("Neg", g.capture("x"))),
    )
    total = x
    for _ in range(3):
        total = main.op("CumSum", total, main.constant("axis", np.int32(0)))
    model = compiled(main.graph(main.op("Concat", chosen, total, axis=0)), tmp_path)
    x_data = np.float32([1, 2, 3, 4])
    total_data = x_data.cumsum().cumsum().cumsum()
    for value, chosen_data in ((0, [-x_data]), (1, [x_data, x_data])):
        (joined,) = model(x_data, value)
        np.testing.assert_array_equal(joined, np.concatenate([*chosen_data, total_data]))


def test_sizes_of_a_result_whose_elements_nothing_uses(tmp_path: Path) -> None:
    then = branch(lambda g: g.op("Concat", g.capture("x"), g.capture("x"), axis=0))
    otherwise = branch(lambda g: g.op("Neg", g.capture("x")))
    main = GraphMaker()
    x, condition = main.input("x", (4,)), main.input("c", (), "int32")
    chosen = main.op("If", condition, then_branch=then, else_branch=otherwise)
    main.op("Mul", chosen, x, name="unused")
    sizes = main.op("Shape", chosen)
    filled = main.op("ConstantOfShape", sizes, value=1.0)
    model = compiled(main.graph(sizes, filled), tmp_path)
    x_data = np.ones(4, np.float32)
    size, ones = model(x_data, 0)
    np.testing.assert_array_equal(size, [4])
    np.testing.assert_array_equal(ones, np.ones(4))
    with pytest.raises(
        rten_aot.ModelRunError, match=r'in node "unused" \(Mul\): sizes .* cannot be'
    ):
        model(x_data, 1)


def test_branches_of_different_rank_are_refused(tmp_path: Path) -> None:
    then = branch(lambda g: g.capture("x"))
    otherwise = branch(
        lambda g: g.op(
            "Reshape", g.capture("x"), g.constant("s", np.int32([2, 2])), allow_zero=False
        )
    )
    with pytest.raises(UnsupportedOpError) as caught:
        compiled(with_if(then, otherwise, (4,)), tmp_path)
    assert 'in node "choice" (If)' in str(caught.value)
    assert "result 0 is float32 of rank 1 in one branch and float32 of rank 2" in str(caught.value)


def test_a_condition_with_many_elements_is_refused(tmp_path: Path) -> None:
    same = branch(lambda g: g.capture("x"))
    main = GraphMaker()
    main.input("x", (2,))
    main.input("c", (2,), "int32")
    chosen = main.op("If", 1, then_branch=same, else_branch=same, name="choice")
    with pytest.raises(ShapeError, match="the condition must have one element"):
        compiled(main.graph(chosen), tmp_path)


def squeeze_if_one(g: GraphMaker) -> int:
    """What exporters make of a squeeze of the last axis."""
    x = g.op("Neg", 0, name="negated")
    sizes = g.op("Shape", x)
    last = g.op("Gather", sizes, g.constant("minus_one", np.int32([-1])), axis=0)
    is_one = g.op("Equal", last, g.constant("one", np.int32([1])))
    then = branch(
        lambda b: b.op("Squeeze", b.capture("negated_0"), b.constant("axis", np.int32([-1])))
    )
    otherwise = branch(lambda b: b.op("Identity", b.capture("negated_0")))
    return g.op("If", is_one, then_branch=then, else_branch=otherwise, name="squeeze")


def test_results_of_different_rank_follow_a_condition_on_sizes(tmp_path: Path) -> None:
    main = GraphMaker()
    main.input("x", ("n", "m"))
    model = compiled(main.graph(squeeze_if_one(main)), tmp_path)
    x = np.float32([[1], [2]])
    np.testing.assert_array_equal(model(x)[0], -x[:, 0])
    with pytest.raises(rten_aot.InputError, match=r'in node "squeeze" \(If\): the branches give'):
        model(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(model(x)[0], -x[:, 0])


def test_a_branch_that_is_impossible_fails_when_it_is_taken(tmp_path: Path) -> None:
    then = branch(
        lambda g: g.op(
            "Reshape", g.capture("x"), g.constant("s", np.int32([5])), name="bad", allow_zero=False
        )
    )
    otherwise = branch(lambda g: g.capture("x"))
    model = compiled(with_if(then, otherwise, (4,)), tmp_path)
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(model(x, 0)[0], x)
    with pytest.raises(rten_aot.ModelRunError, match=r'in node "bad" \(Reshape\)'):
        model(x, 1)
    np.testing.assert_array_equal(model(x, 0)[0], x)


def test_a_captured_number_that_may_be_negative_is_not_taken_for_a_size(tmp_path: Path) -> None:
    main = GraphMaker()
    main.input("x", (4,))
    main.input("c", (), "int32")
    pads = main.input("pads", (2,), "int32")
    value = main.constant("zero", np.float32(0))
    main.op("Pad", 0, pads, value, name="padded", mode="Constant")
    then = branch(lambda g: g.op("Relu", g.capture("padded_0")))
    otherwise = branch(lambda g: g.op("Neg", g.capture("padded_0")))
    chosen = main.op("If", 1, then_branch=then, else_branch=otherwise)
    model = compiled(main.graph(chosen), tmp_path)
    x = np.float32([1, -2, 3, -4])
    for before, after in ((1, 2), (-1, 0), (-1, 2), (2, -3)):
        padded = np.pad(x, (max(before, 0), max(after, 0)))
        padded = padded[max(-before, 0) : padded.size - max(-after, 0)]
        np.testing.assert_array_equal(model(x, 1, [before, after])[0], np.maximum(padded, 0))
        np.testing.assert_array_equal(model(x, 0, [before, after])[0], -padded)
