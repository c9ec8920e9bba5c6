""".rten bytes to a plain ``Model``, with everything checked on the way."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Mapping, Sequence

from ..errors import ModelFormatError
from .container import open_container
from .graph import Graph, Model, Node, OpNode, Value
from .links import Draft, link
from .nodes import NodeReader
from .schema import load_schema
from .tables import NEWER, Damaged, NewerFormatError, Record, Ref, Tables

_SCHEMA_VERSION = 1

# RTen's own verifier stops at 64 nested tables, which is 16 nested graphs.
_MAX_DEPTH = 32

# Memory that a graph keeps besides its nodes, with what checking it takes.
_GRAPH_COST = 300

# Memory that an error kept for later takes.
_UNKNOWN_COST = 2000


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a .rten file of version 1 or 2.

    Constants are read-only views of the memory-mapped file, so it must not be changed while they
    are in use. Besides the hash, nothing reads the weights.

    Raises:
        ModelFormatError: the file is not a valid .rten model; says what is wrong and where.
        OSError: the file cannot be opened or read.
    """
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        chunk = bytearray(1 << 18)
        while count := file.readinto(chunk):
            digest.update(memoryview(chunk)[:count])
        if file.tell() == 0:
            raise ModelFormatError("the file is empty")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _read(memoryview(data), digest.hexdigest())


def read_model_bytes(data: bytes) -> Model:
    """Read a .rten file that is in memory already; constants are read-only views of ``data``.

    Raises:
        ModelFormatError: as for ``read_model``.
    """
    return _read(memoryview(data).toreadonly(), hashlib.sha256(data).hexdigest())


def _read(data: memoryview, sha256: str) -> Model:
    schema = load_schema()
    container = open_container(data)
    tables = Tables(schema, container.model, len(data))
    try:
        record = tables.read(tables.root(schema.tables["Model"]))
    except Damaged as err:
        if container.marked:
            raise err.located() from None
        raise ModelFormatError(
            f"not a .rten model: no RTEN mark, and not readable without ({err.located()})",
            hint="convert ONNX models first: rten-convert model.onnx",
        ) from None
    if record["schema_version"] != _SCHEMA_VERSION:
        raise ModelFormatError(
            f'schema version "{record["schema_version"]}" is not supported; '
            f"supported: {_SCHEMA_VERSION}",
            hint=NEWER,
        )
    graphs = GraphReader(tables, NodeReader(schema, tables, container.tensors))
    try:
        metadata = _metadata(tables, record["metadata"])
        graph = graphs.read(record["graph"])
    except Damaged as err:
        raise err.located() from None
    if graphs.unknown:
        raise _all_unknown(graphs.unknown)
    return Model(graph, container.version, sha256, metadata)


def _all_unknown(errors: Sequence[NewerFormatError]) -> ModelFormatError:
    """One error for all nodes that use what the schema does not have."""
    if len(errors) == 1:
        return errors[0]
    lines = [str(NewerFormatError(e.message, node=e.node, op=e.op, attr=e.attr)) for e in errors]
    listed = "\n  ".join(lines)
    return ModelFormatError(
        f"{len(errors)} nodes use what is not known here:\n  {listed}", hint=NEWER
    )


def _metadata(tables: Tables, ref: Ref | None) -> Mapping[str, str]:
    if ref is None:
        return {}
    return {name: text for name, text in tables.read(ref).items() if text is not None}


class GraphReader:
    """Reads a graph with the graphs inside its operators.

    Nodes that use what the schema does not have are collected in ``unknown``. Where there are any,
    the graphs that were read are of no use.
    """

    def __init__(self, tables: Tables, nodes: NodeReader) -> None:
        self._tables = tables
        self._nodes = nodes
        self.unknown: list[NewerFormatError] = []

    def read(self, ref: Ref, parent: Draft | None = None, host: int = -1, depth: int = 0) -> Graph:
        """The graph at ``ref``, a branch of operator ``host`` of ``parent`` unless outermost.

        Raises:
            ModelFormatError: a node or a reference between nodes is not valid.
            Damaged: the graph's own table is not valid.
        """
        if depth > _MAX_DEPTH:
            raise ModelFormatError(f"graphs are nested more than {_MAX_DEPTH} deep")
        self._tables.charge(_GRAPH_COST)
        record = self._tables.read(ref)
        draft = self._draft(record, parent, host)
        for index, node in enumerate(draft.nodes):
            if isinstance(node, OpNode):
                self._read_branches(node, draft, index, depth)
        # What depends on an unknown operator would only be said to come from nowhere.
        return Graph((), (), ()) if self.unknown else link(draft)

    def _draft(self, record: Record, parent: Draft | None, host: int) -> Draft:
        refs = record["nodes"]
        nodes: list[Node] = []
        if refs is not None:
            for index, ref in enumerate(self._tables.each(refs)):
                try:
                    nodes.append(self._nodes.read(ref, index))
                except NewerFormatError as err:
                    self._tables.charge(_UNKNOWN_COST)
                    self.unknown.append(err)
                    # Keeps the places of the nodes that follow.
                    nodes.append(Value("", None, None))
        inputs, outputs, captures = (
            self._nodes.ints(record[name]) for name in ("inputs", "outputs", "captures")
        )
        return Draft(nodes, inputs, outputs, captures, parent, host)

    def _read_branches(self, node: OpNode, draft: Draft, index: int, depth: int) -> None:
        for attr, value in node.attrs.items():
            if isinstance(value, Ref):
                try:
                    branch = self.read(value, draft, index, depth + 1)
                except Damaged as err:
                    raise err.located(draft.label(index), node.op) from None
                except ModelFormatError as err:
                    if err.node is not None:
                        raise
                    raise ModelFormatError(
                        err.message, node=draft.label(index), op=node.op, attr=attr, hint=err.hint
                    ) from None
                # The reader made these attributes and nobody has seen them yet.
                assert isinstance(node.attrs, dict)
                node.attrs[attr] = branch
