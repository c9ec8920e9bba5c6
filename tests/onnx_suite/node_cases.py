"""ONNX's own node tests (``onnx.backend.test``) as .rten graphs, many of them in one model.

The way is that of a user: ONNX, rten-convert, .rten, ``rten_aot.compile``, ``load``, ``run``.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from rten_convert.converter import Metadata, graph_from_onnx_graph, serialize_model

import rten_aot
from rten_aot.errors import CompileError
from rten_aot.format import Constant, Graph, Model, Node, OpNode, Value, read_model_bytes
from rten_aot.importer import import_model
from tests.support.rten_writer import write_model

Array: TypeAlias = npt.NDArray[Any]
Stage: TypeAlias = Literal["convert", "compile", "run", "compare", "pass"]

CHUNK = 40


@dataclass(frozen=True, eq=False)
class NodeCase:
    """A model of one node, or of the nodes that define an operator, with inputs and results."""

    name: str
    model: onnx.ModelProto
    inputs: Sequence[Any]
    expected: Sequence[Any]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Outcome:
    """How far a case came, and what stopped it."""

    stage: Stage
    message: str = ""


PASS = Outcome("pass")


@dataclass(frozen=True, eq=False)
class Accepted:
    """A case that rten-convert took and that imports; ``inputs`` are those not in the file."""

    case: NodeCase
    graph: Graph
    inputs: Sequence[Array]


@lru_cache(maxsize=1)
def all_cases() -> tuple[NodeCase, ...]:
    """Every case of the installed onnx package, in the package's order."""
    with warnings.catch_warnings():
        # Some cases compute infinities and NaN on purpose.
        warnings.simplefilter("ignore")
        from onnx.backend.test import loader

        tests = loader.load_model_tests(kind="node")
    cases = []
    for test in tests:
        assert test.model is not None
        assert test.data_sets is not None
        for number, (inputs, expected) in enumerate(test.data_sets):
            name = test.name if number == 0 else f"{test.name}/{number}"
            cases.append(NodeCase(name, test.model, inputs, expected, test.rtol, test.atol))
    return tuple(cases)


def convert(case: NodeCase) -> Model:
    """The case as rten-convert writes it; raises whatever stops the converter."""
    with contextlib.redirect_stderr(io.StringIO()):
        graph = graph_from_onnx_graph(case.model.graph)
        data = serialize_model(graph, Metadata(onnx_hash="0" * 64), None)
    return read_model_bytes(bytes(data))


def accept(case: NodeCase) -> Accepted | Outcome:
    """The case as a graph that can be compiled, or why there is none.

    The cases have axes, shapes and the like as inputs of the model. Where these must be known at
    compile time, as few inputs as needed become constants of the file, as they are in models.
    """
    try:
        model = convert(case)
    except Exception as err:
        return Outcome("convert", str(err))
    try:
        inputs = [as_rten(x) for x in case.inputs]
    except TypeError as err:
        return Outcome("compile", str(err))
    failure = ""
    for places in _storable(inputs):
        graph, rest = with_constants(model.graph, inputs, places)
        try:
            import_model(replace(model, graph=graph))
            return Accepted(case, graph, rest)
        except CompileError as err:
            failure = failure or str(err)
            if "must be" not in str(err):
                break
    return Outcome("compile", failure)


def _storable(inputs: Sequence[Array]) -> list[set[int]]:
    """Sets of inputs to store, from none to all that may be sizes, axes or settings."""
    small = [i for i, x in enumerate(inputs) if x.ndim <= 1]
    sizes = {i for i in small if i > 0 and inputs[i].dtype == np.int32}
    return [set(), sizes, set(small) - {0}, set(small)]


def with_constants(
    graph: Graph, inputs: Sequence[Array], places: set[int]
) -> tuple[Graph, list[Array]]:
    """The graph with some inputs stored in it, and the inputs that are left."""
    nodes = list(graph.nodes)
    for place in places:
        index = graph.inputs[place]
        nodes[index] = Constant(nodes[index].name, inputs[place])
    left = [i for i in range(len(inputs)) if i not in places]
    kept = tuple(graph.inputs[i] for i in left)
    return replace(graph, nodes=tuple(nodes), inputs=kept), [inputs[i] for i in left]


def outcomes(cases: Sequence[NodeCase]) -> dict[str, Outcome]:
    """What becomes of each case."""
    found: dict[str, Outcome] = {}
    accepted = []
    for case in cases:
        match accept(case):
            case Outcome() as outcome:
                found[case.name] = outcome
            case graph:
                accepted.append(graph)
    for start in range(0, len(accepted), CHUNK):
        found.update(_halving(accepted[start : start + CHUNK]))
    return found


def _halving(cases: Sequence[Accepted]) -> dict[str, Outcome]:
    """Outcomes of cases in one model; one that spoils it is found by halving."""
    stage: Stage = "compile"
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = write_model(merged([c.graph for c in cases]), Path(folder) / "cases.rten")
            library = rten_aot.compile(source, target="llvm -mcpu=native", opt_level=3)
            stage = "run"
            with rten_aot.load(library, num_threads=2) as model:
                results = model(*[x for c in cases for x in c.inputs])
    except Exception as err:
        if len(cases) == 1:
            return {cases[0].case.name: Outcome(stage, str(err))}
        half = len(cases) // 2
        return _halving(cases[:half]) | _halving(cases[half:])
    found, rest = {}, iter(results)
    for accepted in cases:
        got = [next(rest) for _ in accepted.graph.outputs]
        found[accepted.case.name] = judged(accepted.case, got)
    return found


def merged(graphs: Sequence[Graph]) -> Graph:
    """One graph with the nodes, inputs and outputs of all, whose names get a number in front."""
    nodes: list[Node] = []
    inputs: list[int] = []
    outputs: list[int] = []
    for number, graph in enumerate(graphs):
        start = len(nodes)
        moved = _renamed(graph, f"c{number}/")
        nodes += [_moved(node, start) for node in moved.nodes]
        inputs += [i + start for i in graph.inputs]
        outputs += [i + start for i in graph.outputs]
    return Graph(tuple(nodes), tuple(inputs), tuple(outputs))


def _renamed(graph: Graph, prefix: str) -> Graph:
    """Branches too: they take values from outside by name."""
    nodes: list[Node] = []
    for node in graph.nodes:
        named = replace(node, name=prefix + node.name)
        match named:
            case Value(shape=shape) if shape is not None:
                dims = tuple(prefix + d if isinstance(d, str) else d for d in shape)
                named = replace(named, shape=dims)
            case OpNode(attrs=attrs):
                inner = {
                    k: _renamed(v, prefix) if isinstance(v, Graph) else v for k, v in attrs.items()
                }
                named = replace(named, attrs=inner)
        nodes.append(named)
    return replace(graph, nodes=tuple(nodes))


def _moved(node: Node, start: int) -> Node:
    if not isinstance(node, OpNode):
        return node

    def move(places: Sequence[int | None]) -> tuple[int | None, ...]:
        return tuple(None if i is None else i + start for i in places)

    return replace(node, inputs=move(node.inputs), outputs=move(node.outputs))


def as_rten(array: Any) -> Array:
    """An array in RTen's types, in which bool and all wide integers are int32."""
    if array is None or isinstance(array, list):
        raise TypeError("sequences and optional values are no inputs or outputs of RTen's models")
    is_tensor = isinstance(array, onnx.TensorProto)
    found: Array = onnx.numpy_helper.to_array(array) if is_tensor else np.asarray(array)
    if found.dtype.kind == "f":
        return found.astype(np.float32)
    if found.dtype.name in ("int8", "uint8"):
        return found
    if found.dtype == np.int64:
        # rten-convert clamps constants like this: they stand for "to the end".
        found = np.asarray(found.clip(-(2**31), 2**31 - 1))
    if found.dtype.kind in "biu":
        return found.astype(np.int32)
    raise TypeError(f"{found.dtype} is no type of RTen")


def judged(case: NodeCase, got: Sequence[Array]) -> Outcome:
    """Whether the results are those that the case expects, by its own tolerance."""
    try:
        for result, want in zip(got, case.expected, strict=True):
            expected = as_rten(want)
            assert result.dtype == expected.dtype, f"type {result.dtype}, not {expected.dtype}"
            assert result.shape == expected.shape, f"shape {result.shape}, not {expected.shape}"
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(result, expected, rtol=case.rtol, atol=case.atol)
            else:
                np.testing.assert_array_equal(result, expected)
    except (AssertionError, TypeError, ValueError) as err:
        return Outcome("compare", str(err))
    return PASS
