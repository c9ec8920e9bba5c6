"""References between nodes: order, captures, and every way in which they can be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rten_aot.errors import ModelFormatError
from rten_aot.format import Constant, Graph, Node, OpNode, Value, read_model_bytes
from tests.support.rten_writer import encode, raw_graph


def value(name: str) -> Value:
    return Value(name, None, None)


def op(name: str, inputs: list[int | None], outputs: list[int | None], **attrs: Any) -> OpNode:
    return OpNode(name, "If" if attrs else "Add", tuple(inputs), tuple(outputs), attrs)


def graph(
    nodes: list[Node],
    inputs: tuple[int, ...] = (),
    outputs: tuple[int, ...] = (),
    captures: tuple[int, ...] = (),
) -> Graph:
    return Graph(nodes, inputs, outputs, captures)


def reread(before: Graph) -> Graph:
    return read_model_bytes(encode({"schema_version": 1, "graph": raw_graph(before)})).graph


ONE = Constant("one", np.float32(1).reshape(()))
EMPTY = graph([])


def test_operators_are_put_in_order() -> None:
    a, b, c = (op("a", [4], [5]), op("b", [3], [4]), op("c", [5, 4], [6]))
    values = [value(name) for name in ("x", "p", "q", "r")]
    after = reread(graph([c, a, b, *values], inputs=(3,), outputs=(6,)))
    assert [node.name for node in after.nodes] == ["b", "a", "c", "x", "p", "q", "r"]
    assert (after.inputs, after.outputs) == ((3,), (6,))


def test_captures_count_for_the_order() -> None:
    branch = graph([value("y"), value("t"), op("neg", [0], [1])], outputs=(1,), captures=(0,))
    if_op = op("if", [0], [2], then_branch=branch, else_branch=branch)
    nodes: list[Node] = [value("x"), value("y"), value("z"), if_op, op("late", [0], [1])]
    after = reread(graph(nodes, inputs=(0,), outputs=(2,)))
    assert [node.name for node in after.nodes[3:]] == ["late", "if"]


def test_captures_that_the_file_does_not_list() -> None:
    branch = graph([value("y")], outputs=(0,))
    if_op = op("if", [0], [1], then_branch=branch, else_branch=branch)
    after = reread(graph([value("y"), value("z"), if_op], inputs=(0,), outputs=(1,)))
    operator = after.nodes[2]
    assert isinstance(operator, OpNode)
    read = operator.attrs["then_branch"]
    assert isinstance(read, Graph)
    assert read.captures == (0,)


def test_captured_by_an_inner_branch_from_a_branch_that_captures_it_too() -> None:
    inner = graph([value("x")], outputs=(0,))
    middle_if = op("inner", [0], [1], then_branch=inner, else_branch=inner)
    middle = graph([value("x"), value("t"), middle_if], outputs=(1,))
    outer_if = op("outer", [0], [1], then_branch=middle, else_branch=middle)
    after = reread(graph([value("x"), value("z"), outer_if], inputs=(0,), outputs=(1,)))
    operator = after.nodes[2]
    assert isinstance(operator, OpNode)
    read = operator.attrs["else_branch"]
    assert isinstance(read, Graph)
    assert read.captures == (0,)


def test_constants_may_be_captured_and_be_outputs() -> None:
    branch = graph([value("one")], outputs=(0,), captures=(0,))
    if_op = op("if", [1], [2], then_branch=branch, else_branch=branch)
    after = reread(graph([ONE, value("x"), value("z"), if_op], inputs=(1,), outputs=(0, 1, 2)))
    assert after.outputs == (0, 1, 2)


def _branches(branch: Graph) -> Graph:
    if_op = op("if", [0], [1], then_branch=branch, else_branch=EMPTY)
    return graph([value("x"), value("z"), if_op], inputs=(0,))


X, Y, Z = value("x"), value("y"), value("z")

BROKEN = {
    "input-range": (
        graph([X], inputs=(1,)),
        "graph input 0 refers to node 1, but the graph has 1 nodes",
    ),
    "output-range": (
        graph([X], inputs=(0,), outputs=(0, 2**32 - 1)),
        "graph output 1 refers to node 4294967295, but the graph has 1 nodes",
    ),
    "output-is-operator": (
        graph([X, op("add", [], [0])], outputs=(1,)),
        'graph output 0 refers to node 1, which is the operator "add" (Add)',
    ),
    "input-twice": (graph([X], inputs=(0, 0)), '"x" is listed as a graph input twice'),
    "operand-range": (
        graph([X, op("add", [0, 9], [])], inputs=(0,)),
        'in node "add" (Add): input 1 refers to node 9, but the graph has 2 nodes',
    ),
    "operand-is-operator": (
        graph([X, op("", [], [0]), op("b", [1], [])]),
        'in node "b" (Add): input 0 refers to node 1, which is the operator "#1" (Add)',
    ),
    "result-range": (
        graph([op("add", [], [5])]),
        'in node "add" (Add): output 0 refers to node 5, but the graph has 1 nodes',
    ),
    "result-is-constant": (
        graph([ONE, op("add", [], [0])]),
        'in node "add" (Add): output 0 cannot be "one", which is a constant',
    ),
    "result-is-input": (
        graph([X, op("add", [], [0])], inputs=(0,)),
        'in node "add" (Add): output 0 cannot be "x", which already comes from outside',
    ),
    "two-producers": (
        graph([X, op("a", [], [0]), op("b", [], [0])]),
        'in node "b" (Add): output 0 cannot be "x", which already comes from operator "a"',
    ),
    "same-output-twice": (
        graph([X, op("a", [], [0, 0])]),
        'in node "a" (Add): output 1 cannot be "x", which already comes from operator "a"',
    ),
    "no-producer": (
        graph([X, op("a", [0], [])]),
        'in node "a" (Add): input 0 is "x", which nothing produces',
    ),
    "output-without-producer": (
        graph([X], outputs=(0,)),
        'graph output 0 is "x", which nothing produces',
    ),
    "cycle": (
        graph([X, Y, Z, op("a", [2], [0]), op("b", [0], [1]), op("c", [1], [2])]),
        'in node "a" (Add): depends on its own output: "a" -> "b" -> "c" -> "a"',
    ),
    "self-cycle": (
        graph([X, Y, op("first", [1], []), op("a", [0], [0, 1])]),
        'in node "a" (Add): depends on its own output: "a" -> "a"',
    ),
    "long-cycle": (
        graph([*map(value, "abcdefgh"), *(op(f"o{i}", [i], [(i + 1) % 8]) for i in range(8))]),
        'in node "o0" (Add): depends on its own output: '
        '"o0" -> "o1" -> "o2" -> … -> "o7" -> "o0"',
    ),
    "cycle-through-branch": (
        graph([X, Z, op("if", [0], [1], then_branch=graph([Z], outputs=(0,)), else_branch=EMPTY)],
              inputs=(0,)),
        'in node "if" (If): depends on its own output: "if" -> "if"',
    ),
    "capture-range": (
        _branches(graph([], captures=(3,))),
        'in node "if" (If), attribute "then_branch": captured value 0 refers to node 3, '
        "but the graph has 0 nodes",
    ),
    "captured-input": (
        _branches(graph([X], inputs=(0,), captures=(0,))),
        'in node "if" (If), attribute "then_branch": '
        '"x" is both a graph input and a captured value',
    ),
    "captured-result": (
        _branches(graph([X, op("a", [], [0])], captures=(0,))),
        'in node "a" (Add): output 0 cannot be "x", which already comes from outside',
    ),
    "capture-without-name": (
        _branches(graph([value("")], outputs=(0,), captures=(0,))),
        'in node "if" (If), attribute "then_branch": graph output 0 is "#0", '
        "which nothing produces, and a captured value needs a name",
    ),
    "capture-unknown": (
        _branches(graph([Y, op("a", [0], [])], captures=(0,))),
        'in node "a" (Add): input 0 is "y", which nothing produces, here or in an enclosing graph',
    ),
    "capture-ambiguous": (
        graph([X, X, op("if", [0], [], then_branch=graph([X], outputs=(0,)), else_branch=EMPTY)],
              inputs=(0, 1)),
        'in node "if" (If), attribute "then_branch": graph output 0 is "x", '
        "which is captured by a name that two values share",
    ),
    "captured-but-never-produced": (
        graph([X, op("if", [], [], then_branch=graph([X], outputs=(0,)), else_branch=EMPTY)]),
        'in node "if" (If): a captured value is "x", which nothing produces',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_links(case: str) -> None:
    before, message = BROKEN[case]
    with pytest.raises(ModelFormatError) as error:
        reread(before)
    assert str(error.value) == message
