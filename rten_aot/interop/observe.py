"""The values inside a model: which can be compared, and models that give them as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rten_aot.format import Graph, Model, OpNode

_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_MAKE_SEQUENCES = (
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SplitToSequence",
)


@dataclass(frozen=True)
class Place:
    """A value inside a model: its index, and which output of which operator it is."""

    index: int
    node: OpNode
    output: int


def places(graph: Graph) -> list[Place]:
    """The tensors that operators give, in the order of the graph, but for random ones."""
    left_out = sequences(graph) | random_values(graph)
    return [
        Place(index, node, position)
        for node in graph.nodes
        if isinstance(node, OpNode)
        for position, index in enumerate(node.outputs)
        if index is not None and index not in left_out
    ]


def with_outputs(model: Model, outputs: Sequence[int]) -> Model:
    """The model with these values as its outputs."""
    return replace(model, graph=replace(model.graph, outputs=tuple(outputs)))


def random_values(graph: Graph) -> set[int]:
    """Values that depend on random numbers."""
    found: set[int] = set()
    for node in graph.nodes:
        if isinstance(node, OpNode) and (_draws(node) or found.intersection(node.inputs)):
            found.update(i for i in node.outputs if i is not None)
    return found


def _draws(node: OpNode) -> bool:
    return node.op in _RANDOM or any(
        isinstance(inner, OpNode) and _draws(inner)
        for graph in _inner(node)
        for inner in graph.nodes
    )


def _inner(node: OpNode) -> Iterator[Graph]:
    return (value for value in node.attrs.values() if isinstance(value, Graph))


def sequences(graph: Graph, outside: frozenset[str] = frozenset()) -> set[int]:
    """Values that are sequences of tensors; ``outside`` are names of such around the graph."""
    found = {i for i in graph.captures if graph.nodes[i].name in outside}
    for node in graph.nodes:
        if not isinstance(node, OpNode):
            continue
        names = outside | {graph.nodes[i].name for i in found}
        match node.op:
            case op if op in _MAKE_SEQUENCES:
                chosen = set(range(len(node.outputs)))
            case "Identity":
                chosen = {0} if node.inputs[0] in found else set()
            case "If":
                chosen = _sequence_outputs(next(_inner(node)), names)
            case "Loop":
                chosen = {i - 2 for i, value in enumerate(node.inputs) if value in found}
            case _:
                continue
        found.update(i for p, i in enumerate(node.outputs) if p in chosen and i is not None)
    return found


def _sequence_outputs(graph: Graph, names: frozenset[str]) -> set[int]:
    inner = sequences(graph, names)
    return {position for position, index in enumerate(graph.outputs) if index in inner}
