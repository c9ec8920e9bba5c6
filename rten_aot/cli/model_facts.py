"""What ``rten-aot inspect`` tells about a .rten model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rten_aot.errors import CompileError
from rten_aot.extras import import_compiler
from rten_aot.format import read_model
from rten_aot.format.graph import Constant, Graph, OpNode, Value


def model_facts(path: Path) -> dict[str, Any]:
    """Inputs, outputs, operators by frequency, sizes and metadata, as plain data for JSON.

    ``unsupported`` is None where the compiler is not installed and so cannot be asked.

    Raises:
        ModelFormatError: the file is not a valid model.
        OSError: it cannot be read.
    """
    model = read_model(path)
    graphs = list(_graphs(model.graph))
    nodes = [node for graph in graphs for node in graph.nodes]
    operators = Counter(node.op for node in nodes if isinstance(node, OpNode))
    constants = [node.data for node in nodes if isinstance(node, Constant)]
    return {
        "format": model.format,
        "sha256": model.sha256,
        "inputs": _tensors(model.graph, model.graph.inputs, "input"),
        "outputs": _tensors(model.graph, model.graph.outputs, "output"),
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "parameters": sum(data.size for data in constants),
        "weight_bytes": sum(data.nbytes for data in constants),
        "metadata": dict(model.metadata),
        "unsupported": _unsupported(operators),
    }


def _graphs(graph: Graph) -> Iterator[Graph]:
    """A graph and the branches inside it."""
    yield graph
    for node in graph.nodes:
        if isinstance(node, OpNode):
            for value in node.attrs.values():
                if isinstance(value, Graph):
                    yield from _graphs(value)


def _tensors(graph: Graph, places: Iterable[int], kind: str) -> list[dict[str, Any]]:
    tensors = []
    for position, place in enumerate(places):
        match graph.nodes[place]:
            case Value(name, shape, dtype):
                sizes = None if shape is None else list(shape)
                tensors.append({"name": name, "dtype": dtype, "shape": sizes})
            case Constant(name, data):
                tensors.append({"name": name, "dtype": str(data.dtype), "shape": list(data.shape)})
        tensors[-1]["name"] = tensors[-1]["name"] or f"{kind}_{position}"
    return tensors


def _unsupported(operators: Iterable[str]) -> list[str] | None:
    try:
        registry = import_compiler("rten_aot.importer.registry")
    except CompileError:
        return None
    return sorted(set(operators) - registry.load_all().keys())
