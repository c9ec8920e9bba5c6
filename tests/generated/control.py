"""If and Loop around random bodies, which capture what lies outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rten_aot.format.graph import Graph
from tests.generated.anchors import ANCHORS
from tests.generated.moves import MOVES, Move, tame
from tests.generated.programs import Program, Unfit
from tests.generated.sized import SIZED
from tests.ops.test_control_flow import GraphMaker
from tests.support.cases import Array

MOST_TRIPS = 4


def grow(p: Program, count: int, moves: Sequence[Move]) -> list[int]:
    """Add ``count`` of the moves; returns the results of the last one."""
    made = 0
    results: list[int] = []
    for _ in range(200):
        if made == count:
            break
        try:
            results = tame(p, p.g.pick(*moves)(p))
            made += 1
        except Unfit:
            continue
    return results


def body(p: Program, name: str) -> Program:
    """An empty graph inside another one."""
    return Program(p.g, GraphMaker(), f"{p.label}{name}{len(p.maker.nodes)}_", parent=p)


def as_float(p: Program, place: int) -> int:
    if p.dtype(place) == "float32":
        return place
    return p.op("Cast", [place], lambda v: v.astype(np.float64), to="Float")[0]


def shift(p: Program, x: int, by: int) -> int:
    """``x`` with the largest element of another value added; it keeps its shape."""
    largest = p.op("ReduceMax", [as_float(p, by)], np.max, axes=None, keep_dims=False)
    (sum_,) = p.op("Add", [x, *largest], np.add)
    low, high = p.constant(-8, "float32"), p.constant(8, "float32")
    return p.op("Clip", [sum_, low, high], lambda v, a, b: np.clip(v, a, b))[0]


def chain(p: Program, outer: Sequence[int]) -> int:
    """The last of a few values made of captured ones."""
    for place in outer:
        p.capture(place)
    outermost = p.parent is None or p.parent.parent is None
    results = grow(
        p, p.g.random.randint(1, 3), [*MOVES, *ANCHORS, *SIZED, *(CONTROL if outermost else ())]
    )
    return results[-1] if results else next(reversed(p.arrays))


def condition(p: Program) -> int:
    """A number that is 0 or not: an input, or computed from exact values."""
    if p.condition is not None and p.g.chance(0.5):
        return p.condition()
    x = p.pick("float32", exact=True)
    (largest,) = p.op("ReduceMax", [x], np.max, axes=None, keep_dims=False)
    limit = p.constant(p.g.random.randint(0, 5), "float32")
    return p.op("Less", [largest, limit], np.less)[0]


def results(inner: Program, captured: Sequence[Array], outputs: Sequence[int]) -> list[Array]:
    """What a graph without inputs of its own gives."""
    values = inner.run(dict(zip(inner.captured.values(), captured, strict=True)))
    return [values[i] for i in outputs]


def either(p: Program) -> list[int]:
    """If: results of one shape, or of sizes that differ."""
    chosen = condition(p)
    x = p.pick("float32")
    outer = [x, p.pick()]
    flat = p.g.chance(0.5)
    branches: list[tuple[Program, list[int]]] = []
    for name in ("then", "else"):
        inner = body(p, name)
        last = chain(inner, outer)
        if flat:
            made = inner.op("Reshape", [as_float(inner, last), inner.constant([-1])],
                            lambda v, _: v.reshape(-1), allow_zero=False)[0]  # fmt: skip
        else:
            made = shift(inner, inner.capture(x), last)
            if p.g.chance(0.2):
                made = inner.capture(x)
        branches.append((inner, [made]))
    graphs = [inner.maker.graph(*outputs) for inner, outputs in branches]
    captures = list(dict.fromkeys(i for inner, _ in branches for i in inner.captured))

    def function(c: Array, *values: Array) -> list[Array]:
        inner, outputs = branches[0] if c.reshape(()) else branches[1]
        given = dict(zip(captures, values, strict=True))
        return results(inner, [given[i] for i in inner.captured], outputs)

    imprecise = any(not inner.rough.isdisjoint(made) for inner, made in branches)
    return add(p, "If", [chosen], captures, function, 1, imprecise,
               then_branch=graphs[0], else_branch=graphs[1])  # fmt: skip


def add(
    p: Program,
    op: str,
    operands: Sequence[int],
    captures: Sequence[int],
    function: Any,
    outputs: int,
    imprecise: bool,
    **graphs: Graph,
) -> list[int]:
    """An operator with graphs, whose function also takes what they capture."""
    made = p.op(op, [*operands, *captures], function, outputs=outputs, rough=imprecise, **graphs)
    # In the file the captures are no operands.
    node = p.maker.nodes[-1]
    p.maker.nodes[-1] = type(node)(node.name, op, tuple(operands), node.outputs, node.attrs)
    return made


def loop(p: Program) -> list[int]:
    """Loop over one value that keeps its shape, perhaps with a scan output."""
    x = p.pick("float32", exact=True)
    trips = p.count() if p.count is not None and p.g.chance(0.6) else p.constant(p.g.pick(0, 1, 3))
    inner = body(p, "loop")
    number = inner.input("number", (), np.array(0, np.int32))
    go_on = inner.input("go_on", (), np.array(1, np.int32))
    value = inner.input("value", [None] * p.arrays[x].ndim, p.arrays[x])
    last = chain(inner, [p.pick()])
    if p.g.chance(0.5):
        last = inner.op("Add", [as_float(inner, number), as_float(inner, last)], np.add)[0]
    following = shift(inner, value, last)
    more = go_on
    if p.g.chance(0.4) and following not in inner.rough:
        top = inner.op("ReduceMax", [following], np.max, axes=None, keep_dims=False)
        more = inner.op("Less", [*top, inner.constant(7, "float32")], np.less)[0]
    scans = [last] if p.g.chance(0.6) and not _ops(inner) & {"NonZero", "If"} else []
    captures = list(inner.captured)

    def once(i: int, state: Array, values: Sequence[Array]) -> list[Array]:
        feeds = {number: np.array(i, np.int32), go_on: np.array(1, np.int32), value: state}
        found = inner.run(feeds | dict(zip(inner.captured.values(), values, strict=True)))
        return [found[i] for i in (more, following, *scans)]

    def function(limit: Array, _: Array, state: Array, *values: Array) -> list[Array]:
        shapes = [y.shape for y in once(0, state, values)[2:]]
        seen: list[list[Array]] = [[] for _ in scans]
        for i in range(int(limit)):
            further, state, *now = once(i, state, values)
            for collected, y in zip(seen, now, strict=True):
                collected.append(y)
            if not further:
                break
        empty = [np.zeros((0, *s), inner.arrays[i].dtype)
                 for s, i in zip(shapes, scans, strict=True)]  # fmt: skip
        return [state, *(np.stack(s) if s else e for s, e in zip(seen, empty, strict=True))]

    graph = inner.maker.graph(more, following, *scans)
    imprecise = not inner.rough.isdisjoint([following, *scans])
    operands = [trips, p.constant(1), x]
    return add(p, "Loop", operands, captures, function, 1 + len(scans), imprecise, body=graph)


def _ops(p: Program) -> set[str]:
    return {getattr(node, "op", "") for node in p.maker.nodes}


CONTROL: tuple[Move, ...] = (either, loop)
