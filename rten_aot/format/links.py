"""How the nodes of one graph hang together: producers, captured values, operator order."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from ..errors import ModelFormatError
from .graph import Constant, Graph, Node, OpNode, Value


@dataclass
class Draft:
    """A graph whose nodes are read but not yet checked against each other.

    ``host`` is the index of the operator of ``parent`` that this graph is a branch of.
    ``borrowed`` holds, by operator index, the nodes of this graph that its branches capture.
    """

    nodes: list[Node]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captures: tuple[int, ...]
    parent: Draft | None
    host: int
    borrowed: dict[int, set[int]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    repeated: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            if node.name and not isinstance(node, OpNode):
                if self.names.setdefault(node.name, index) != index:
                    self.repeated.add(node.name)

    def label(self, index: int) -> str:
        """The name of a node for error messages."""
        return self.nodes[index].name or f"#{index}"


def link(draft: Draft) -> Graph:
    """Check every reference between nodes and put the operators in order.

    Branches must have been linked before the graph around them. A value that nothing in a branch
    produces counts as captured, listed or not, if an enclosing graph has one of its name.

    Raises:
        ModelFormatError: a reference is out of range or of the wrong kind, a value has two
            producers or none, or operators depend on each other in a circle.
    """
    _check_references(draft)
    producers = _producers(draft)
    captures = _captures(draft, producers)
    order = _order(draft, producers)
    nodes = list(draft.nodes)
    if order is not None:
        # Nothing refers to an operator by index, so they may trade places among themselves.
        places = [i for i, node in enumerate(nodes) if isinstance(node, OpNode)]
        for place, index in zip(places, order, strict=True):
            nodes[place] = draft.nodes[index]
    # ONNX models may list weights as inputs that the caller can override; they stay constants.
    inputs = tuple(i for i in draft.inputs if isinstance(nodes[i], Value))
    return Graph(tuple(nodes), inputs, draft.outputs, captures)


def _check_references(draft: Draft) -> None:
    for what, indices in (
        ("graph input", draft.inputs),
        ("graph output", draft.outputs),
        ("captured value", draft.captures),
    ):
        for position, index in enumerate(indices):
            if problem := _problem(draft, index):
                raise ModelFormatError(f"{what} {position} {problem}")
    for op_index, node in enumerate(draft.nodes):
        if isinstance(node, OpNode):
            for what, places in (("input", node.inputs), ("output", node.outputs)):
                for position, place in enumerate(places):
                    if place is not None and (problem := _problem(draft, place)):
                        raise ModelFormatError(
                            f"{what} {position} {problem}", node=draft.label(op_index), op=node.op
                        )


def _problem(draft: Draft, index: int) -> str | None:
    if index >= len(draft.nodes):
        return f"refers to node {index}, but the graph has {len(draft.nodes)} nodes"
    if isinstance(node := draft.nodes[index], OpNode):
        return f'refers to node {index}, which is the operator "{draft.label(index)}" ({node.op})'
    return None


def _producers(draft: Draft) -> dict[int, int]:
    """By value: the operator that computes it, or -1 for graph inputs and listed captures."""
    producers: dict[int, int] = {}
    for index in draft.inputs:
        if index in producers:
            raise ModelFormatError(f'"{draft.label(index)}" is listed as a graph input twice')
        producers[index] = -1
    for index in dict.fromkeys(draft.captures):
        if isinstance(draft.nodes[index], Value):
            if index in producers:
                raise ModelFormatError(
                    f'"{draft.label(index)}" is both a graph input and a captured value'
                )
            producers[index] = -1
    for op_index, node in enumerate(draft.nodes):
        if not isinstance(node, OpNode):
            continue
        for position, place in enumerate(node.outputs):
            if place is None:
                continue
            problem = None
            if isinstance(draft.nodes[place], Constant):
                problem = "is a constant"
            elif (other := producers.get(place)) is not None:
                source = f'operator "{draft.label(other)}"' if other >= 0 else "outside"
                problem = f"already comes from {source}"
            if problem is not None:
                raise ModelFormatError(
                    f'output {position} cannot be "{draft.label(place)}", which {problem}',
                    node=draft.label(op_index),
                    op=node.op,
                )
            producers[place] = op_index
    return producers


def _captures(draft: Draft, producers: dict[int, int]) -> tuple[int, ...]:
    """The values that are used here and come from the graphs around; resolves each by name."""
    listed = set(draft.captures)
    captures: dict[int, None] = {}

    def use(index: int, by: str, op_index: int | None) -> None:
        if isinstance(draft.nodes[index], Constant) or index in captures:
            return
        if index in producers and index not in listed:
            return
        problem = _borrow(draft, index)
        if problem is not None:
            node = None if op_index is None else draft.nodes[op_index]
            raise ModelFormatError(
                f'{by} is "{draft.label(index)}", which {problem}',
                node=None if op_index is None else draft.label(op_index),
                op=node.op if isinstance(node, OpNode) else None,
            )
        captures[index] = None

    for op_index, node in enumerate(draft.nodes):
        if isinstance(node, OpNode):
            for position, place in enumerate(node.inputs):
                if place is not None:
                    use(place, f"input {position}", op_index)
            for place in sorted(draft.borrowed.get(op_index, ())):
                use(place, "a captured value", op_index)
    for position, index in enumerate(draft.outputs):
        use(index, f"graph output {position}", None)
    return tuple(sorted(captures))


def _borrow(draft: Draft, index: int) -> str | None:
    """Mark what a value of ``draft`` captures as used by the operator around; or the problem."""
    name = draft.nodes[index].name
    host, outer = draft.host, draft.parent
    if outer is None:
        return "nothing produces"
    if not name:
        return "nothing produces, and a captured value needs a name"
    while outer is not None:
        if name in outer.repeated:
            return "is captured by a name that two values share"
        if (found := outer.names.get(name)) is not None:
            outer.borrowed.setdefault(host, set()).add(found)
            return None
        host, outer = outer.host, outer.parent
    return "nothing produces, here or in an enclosing graph"


def _order(draft: Draft, producers: dict[int, int]) -> list[int] | None:
    """Operators so that producers come first; None if the file has them so already."""
    needs: dict[int, set[int]] = {}
    in_order = True
    for op_index, node in enumerate(draft.nodes):
        if isinstance(node, OpNode):
            used = draft.borrowed.get(op_index, set()).union(
                i for i in node.inputs if i is not None
            )
            before = {producers.get(i, -1) for i in used} - {-1}
            needs[op_index] = before
            in_order = in_order and all(i < op_index for i in before)
    if in_order:
        return None

    users: dict[int, list[int]] = {}
    for op_index, before in needs.items():
        for producer in before:
            users.setdefault(producer, []).append(op_index)
    waiting = {op_index: len(before) for op_index, before in needs.items()}
    ready = [op_index for op_index, count in waiting.items() if count == 0]
    order = []
    while ready:
        op_index = heapq.heappop(ready)
        order.append(op_index)
        del waiting[op_index]
        for user in users.get(op_index, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if waiting:
        _fail_on_cycle(draft, needs, waiting)
    return order


def _fail_on_cycle(draft: Draft, needs: dict[int, set[int]], stuck: dict[int, int]) -> None:
    """Every stuck operator waits for a stuck one, so walking back must come round."""
    at = min(stuck)
    seen: dict[int, None] = {}
    while at not in seen:
        seen[at] = None
        at = min(i for i in needs[at] if i in stuck)
    walk = list(seen)
    cycle = [at, *reversed(walk[walk.index(at) + 1 :]), at]
    names = [f'"{draft.label(i)}"' for i in cycle]
    if len(names) > 6:
        names[3:-2] = ["…"]
    node = draft.nodes[at]
    assert isinstance(node, OpNode)
    raise ModelFormatError(
        f"depends on its own output: {' -> '.join(names)}", node=draft.label(at), op=node.op
    )
