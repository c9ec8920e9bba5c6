"""A model as plain data, independent of the file format it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

DType: TypeAlias = Literal["int32", "float32", "int8", "uint8"]

Dim: TypeAlias = int | str | None
"""A fixed size, a named symbolic size, or a free size that equals no other."""


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor stored in the model; ``data`` is a read-only view of the mapped file."""

    name: str
    data: npt.NDArray[np.generic]


@dataclass(frozen=True)
class Value:
    """A tensor known at run time only; ``shape`` and ``dtype`` are hints, None if absent."""

    name: str
    shape: tuple[Dim, ...] | None
    dtype: DType | None


@dataclass(frozen=True, eq=False)
class OpNode:
    """An operator. Inputs and outputs are node indices; None stands for one left out.

    ``attrs`` holds every field of the operator's attribute table, defaults included; enums are
    given by their schema name (``"Same"``), scalar unions by a Python int or float, branches by a
    ``Graph``, optional fields that are absent by None. An operator without a table has no attrs.
    """

    name: str
    op: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attrs: Mapping[str, object] = field(default_factory=dict)


Node: TypeAlias = Constant | Value | OpNode


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes by index; operators in an order in which every producer comes before its consumers.

    ``captures`` are indices of this graph's Value nodes whose values come, by name, from the
    enclosing graph.
    """

    nodes: Sequence[Node]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captures: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Model:
    """A graph with what the file says about itself."""

    graph: Graph
    format: Literal["rten-v1", "rten-v2"]
    sha256: str
    metadata: Mapping[str, str] = field(default_factory=dict)
