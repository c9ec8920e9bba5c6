"""Models in memory, written down by the names of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rten_aot.format import Constant, Dim, DType, Graph, Model, Node, OpNode, Value

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Op:
    """An operator; names of operands and results are separated by spaces, ``-`` is one left out."""

    op: str
    inputs: str
    outputs: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None


def graph(
    inputs: Mapping[str, tuple[DType, tuple[Dim, ...] | None]],
    constants: Mapping[str, Any],
    ops: Sequence[Op],
    outputs: str,
    captures: str = "",
) -> Graph:
    """A graph whose constants are float32 or int32 unless they are arrays."""
    nodes: list[Node] = [Value(name, shape, dtype) for name, (dtype, shape) in inputs.items()]
    nodes += [Constant(name, _array(value)) for name, value in constants.items()]
    nodes += [Value(name, None, None) for name in captures.split()]
    places = {node.name: i for i, node in enumerate(nodes)}

    def found(names: str) -> tuple[int | None, ...]:
        return tuple(None if name == "-" else places[name] for name in names.split())

    for op in ops:
        for name in op.outputs.split():
            if name != "-" and name not in places:
                places[name] = len(nodes)
                nodes.append(Value(name, None, None))
        name = op.outputs.replace("-", "").split()[0] if op.name is None else op.name
        nodes.append(OpNode(name, op.op, found(op.inputs), found(op.outputs), op.attrs))
    ends = tuple(places[name] for name in outputs.split())
    caught = tuple(places[name] for name in captures.split())
    return Graph(tuple(nodes), tuple(range(len(inputs))), ends, caught)


def model(
    inputs: Mapping[str, tuple[DType, tuple[Dim, ...] | None]],
    constants: Mapping[str, Any],
    ops: Sequence[Op],
    outputs: str,
    **metadata: str,
) -> Model:
    """A model with the graph that ``graph`` makes of these."""
    return Model(graph(inputs, constants, ops, outputs), "rten-v2", "0" * 64, metadata)


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
