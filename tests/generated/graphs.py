"""Draws random graphs in all ways in which sizes and operands may be known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from rten_aot.format.graph import Dim, Graph, Node, OpNode
from tests.generated import anchors, moves
from tests.generated.anchors import ANCHORS
from tests.generated.control import CONTROL, MOST_TRIPS, grow
from tests.generated.generator import Generator
from tests.generated.moves import MOVES, Move
from tests.generated.programs import Program
from tests.generated.sized import SIZED
from tests.ops.test_control_flow import GraphMaker
from tests.support.cases import Array, Mode

RUNS = 4

Kind: TypeAlias = Literal["plain", "pictures", "matrices", "control"]
ANY: tuple[Move, ...] = (*MOVES, *ANCHORS, *ANCHORS, *SIZED)
KINDS: dict[Kind, tuple[Move, ...]] = {
    "plain": ANY,
    "pictures": (
        *[anchors.conv] * 5,
        anchors.pool,
        anchors.enlarge,
        anchors.batch_norm,
        *[moves.unary, moves.binary, moves.concat] * 2,
        moves.transpose,
        moves.cut,
        moves.split,
        moves.pad,
        moves.reduce,
    ),
    "matrices": (
        *[anchors.matmul] * 3,
        *[anchors.layer_norm, moves.softmax, moves.transpose, moves.reshape] * 2,
        *[moves.unary, moves.rough, moves.binary, moves.binary],
        moves.reduce,
        moves.concat,
        moves.cut,
        moves.split,
        moves.gather,
    ),
    "control": ANY,
}
"""What graphs of each kind grow by; those of "control" have If and Loop in their middle."""


@dataclass
class Drawn:
    """A random graph: its inputs, by place, and what it is run on."""

    program: Program
    mode: Mode
    inputs: dict[int, tuple[Dim, ...]] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    feeds: list[dict[int, Array]] = field(default_factory=list)

    def wanted(self, run: int) -> list[Array]:
        """The results of a run."""
        values = self.program.run(self.feeds[run])
        return [values[i] for i in self.outputs]

    def describe(self) -> str:
        """The graph in words, for messages."""
        own = [n for n in self.program.maker.nodes if n.name.startswith(self.program.label)]
        head = f"{self.program.label} {self.mode}: inputs {self.inputs}, outputs {self.outputs}"
        return "\n".join([head, *_lines(own, "  ")])


def _lines(nodes: Sequence[Node], indent: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, OpNode):
            graphs = {k: v for k, v in node.attrs.items() if isinstance(v, Graph)}
            attrs = {k: v for k, v in node.attrs.items() if k not in graphs}
            yield f"{indent}{node.op} {node.inputs} -> {node.outputs} {attrs}"
            for name, graph in graphs.items():
                captured = {i: graph.nodes[i].name for i in graph.captures}
                yield f"{indent}{name} {graph.inputs} {captured} -> {graph.outputs}"
                yield from _lines(graph.nodes, indent + "  ")


def draw(seed: int, mode: Mode, maker: GraphMaker, kind: Kind) -> Drawn:
    """A graph, added to what ``maker`` has; the same for all modes."""
    g = Generator(seed)
    drawn = Drawn(Program(g, maker, f"g{seed}_"), mode)
    dims = Generator(seed + 1)  # what sizes are called has no say in what is drawn
    for i in range(g.random.randint(1, 3)):
        _input(drawn, dims, f"x{i}", _shape(g, kind))
    p = drawn.program
    p.condition = lambda: _number(drawn, "condition", g.pick(0, 1))
    p.count = lambda: _number(drawn, "trips", g.random.randint(0, MOST_TRIPS))
    more = 0 if KINDS[kind] is ANY else 2
    grow(p, g.random.randint(1, 3 + more), KINDS[kind])
    if kind == "control":
        grow(p, g.random.randint(1, 2), CONTROL)
    last = grow(p, g.random.randint(1, 3 + more), KINDS[kind])
    others = [i for i in p.arrays if i not in last and g.chance(0.2)]
    drawn.outputs = list(dict.fromkeys([*last, *others])) or [next(iter(p.arrays))]
    if g.chance(0.1):  # one is listed twice
        drawn.outputs.append(drawn.outputs[0])
    drawn.feeds = [{i: p.arrays[i] for i in drawn.inputs}]
    for _ in range(RUNS - 1):
        drawn.feeds.append(_other_feeds(drawn, dims))
    return drawn


def _shape(g: Generator, kind: Kind) -> list[int]:
    if kind == "matrices":
        return [g.pick(1, 2, 5), g.pick(1, 4, 7, 16), g.pick(8, 16, 24)][g.pick(0, 0, 1) :]
    if kind == "pictures" or g.chance(0.5):
        return [g.pick(1, 1, 2), g.pick(1, 3, 4, 8, 16), g.random.randint(2, 9), g.pick(2, 5, 8)]
    if g.chance(0.1):  # enough for several threads
        return [g.pick(16, 33), g.pick(65, 300)]
    return [g.pick(1, 2, 3, 4, 6, 8, 16) for _ in range(g.random.randint(0, 4))]


def _numbers(g: Generator, shape: list[int], dtype: str) -> Array:
    return g.numbers.integers(-3, 4, shape).astype(dtype)


def _input(drawn: Drawn, dims: Generator, name: str, shape: list[int]) -> None:
    p = drawn.program
    array = _numbers(p.g, shape, "float32" if p.g.chance(0.85) else "int32")
    shared, free = ([dims.chance(c) for _ in shape] for c in (0.4, 0.8))
    if drawn.mode == "folded" or (drawn.mode == "constant" and p.arrays):
        p.constant(array, array.dtype.name)
        return
    sizes: list[Dim] = list(shape)
    if drawn.mode == "dynamic":
        for axis, n in enumerate(shape):
            own = f"{p.label}{name}_{axis}"
            sizes[axis] = n if not free[axis] else f"{p.label}size{n}" if shared[axis] else own
    drawn.inputs[p.input(name, sizes, array)] = tuple(sizes)


def _number(drawn: Drawn, name: str, value: int) -> int:
    p = drawn.program
    array = np.array(value, np.int32)
    if drawn.mode == "folded":
        return p.constant(array)
    place = p.input(f"{name}{len(p.maker.nodes)}", (), array)
    drawn.inputs[place] = ()
    return place


def _other_feeds(drawn: Drawn, g: Generator) -> dict[int, Array]:
    """Other numbers, and other sizes where they are free, that NumPy can compute with."""
    p = drawn.program
    for _ in range(8):
        sizes: dict[Dim, int] = {}
        feeds: dict[int, Array] = {}
        for place, dims in drawn.inputs.items():
            old = p.arrays[place]
            for dim, n in zip(dims, old.shape, strict=True):
                other = n if g.chance(0.6) else g.pick(0, 1, 1, 2, 3, 5, 9)
                sizes.setdefault(dim, n if isinstance(dim, int) else other)
            if old.dtype.kind == "i" and old.ndim == 0:
                feeds[place] = np.array(g.random.randint(0, MOST_TRIPS), np.int32)
            else:
                feeds[place] = _numbers(g, [sizes[dim] for dim in dims], p.dtype(place))
        if _possible(drawn, feeds):
            return feeds
    return drawn.feeds[0]


def _possible(drawn: Drawn, feeds: Mapping[int, Array]) -> bool:
    try:
        values = drawn.program.run(feeds)
    except (ValueError, IndexError):
        return False
    return all(np.abs(y).max(initial=0) < 2**23 for y in values.values())
