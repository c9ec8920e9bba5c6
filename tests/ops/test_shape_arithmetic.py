"""Tensors made of sizes: computed at compile time, as far as symbolic sizes go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper, numpy_helper
from rten_convert.converter import Metadata, graph_from_onnx_graph, serialize_model

import rten_aot
from rten_aot.dialect.functions import bindings
from rten_aot.dialect.registry import op_def
from rten_aot.format import read_model
from rten_aot.importer import import_model

Array = np.ndarray[Any, Any]
Nodes = Sequence[NodeProto]


def node(op: str, inputs: str, output: str, **attrs: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attrs)


CONSTANTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "two": np.array(2),
    "minus_one": np.array([-1]),
    "axis0": np.array([0]),
    "axis1": np.array([1]),
    "far": np.array([2**31 - 1]),
    "pair": np.array([0, 1]),
    "float_one": np.array(1, np.float32),
    "float_zero": np.array(0, np.float32),
}


def write(nodes: Nodes, path: Path) -> Path:
    """A model with the input x [n, m, 4] and the last node's output."""
    used = {name for n in nodes for name in n.input}
    stored = [numpy_helper.from_array(v, k) for k, v in CONSTANTS.items() if k in used]
    x = helper.make_tensor_value_info("x", 1, ["n", "m", 4])
    y = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    graph = helper.make_graph(nodes, "sizes", [x], [y], stored)
    converted = graph_from_onnx_graph(graph)
    path.write_bytes(bytes(serialize_model(converted, Metadata(onnx_hash="0" * 64), None)))
    return path


def split_heads(x: Array) -> Array:
    n, m, _ = x.shape
    return np.asarray(x.reshape(n, m, 2, 2).transpose(0, 2, 1, 3))


GRAPHS: dict[str, tuple[Nodes, Callable[[Array], Any]]] = {
    "flatten": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Unsqueeze", "n axis0", "n1"),
            node("Concat", "n1 minus_one", "to", axis=0),
            node("Reshape", "x to", "y"),
        ],
        lambda x: x.reshape(x.shape[0], -1),
    ),
    "heads": (
        [
            node("Shape", "x", "s"),
            node("Slice", "s pair_begin pair_end", "nm"),
            node("Concat", "nm twos", "to", axis=0),
            node("Reshape", "x to", "split"),
            node("Transpose", "split", "y", perm=[0, 2, 1, 3]),
        ],
        split_heads,
    ),
    "positions": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s one", "m"),
            node("Range", "zero m one", "y"),
        ],
        lambda x: np.arange(x.shape[1], dtype=np.int32),
    ),
    "float-positions": (
        [
            node("Shape", "x", "s", start=0, end=1),
            node("Squeeze", "s axis0", "n"),
            node("Cast", "n", "f", to=1),
            node("Range", "float_zero f float_one", "y"),
        ],
        lambda x: np.arange(x.shape[0], dtype=np.float32),
    ),
    "fill": (
        [
            node("Shape", "x", "s", end=2),
            node("ConstantOfShape", "s", "y", value=numpy_helper.from_array(np.array([1.5], "f"))),
        ],
        lambda x: np.full(x.shape[:2], 1.5, np.float32),
    ),
    "expand": (
        [
            node("Shape", "x", "s"),
            node("Expand", "float_one s", "ones"),
            node("Add", "x ones", "y"),
        ],
        lambda x: x + 1,
    ),
    "half": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s one", "m"),
            node("Div", "m two", "half"),
            node("Unsqueeze", "half axis0", "begin"),
            node("Slice", "x begin far axis1", "y"),
        ],
        lambda x: x[:, x.shape[1] // 2 :],
    ),
    "size-as-data": (
        [node("Shape", "x", "s"), node("Mul", "s two", "y")],
        lambda x: np.array(x.shape, np.int32) * 2,
    ),
    "less-than-any-size": (
        [node("Shape", "x", "s", end=2), node("Min", "s minus_one", "y")],
        lambda _: np.full(2, -1, np.int32),
    ),
    "size": ([node("Size", "x", "y")], lambda x: np.array(x.size, np.int32)),
}
CONSTANTS |= {
    "pair_begin": np.array([0]),
    "pair_end": np.array([2]),
    "twos": np.array([2, 2]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_symbolic_sizes(name: str, tmp_path: Path) -> None:
    nodes, expected = GRAPHS[name]
    model = write(nodes, tmp_path / "m.rten")
    library = rten_aot.compile(model, tmp_path / "m.so", target="llvm -mcpu=native")
    loaded = rten_aot.load(library, num_threads=1)
    for n, m in [(2, 6), (1, 1), (3, 5), (7, 20)]:
        x = np.arange(n * m * 4, dtype=np.float32).reshape(n, m, 4)
        (got,) = loaded.run({"x": x}).values()
        want = np.asarray(expected(x))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["flatten", "heads", "half"])
def test_no_shape_arithmetic_is_left(name: str, tmp_path: Path) -> None:
    imported = import_model(read_model(write(GRAPHS[name][0], tmp_path / "m.rten")))
    used: set[str] = set()
    function = imported.functions["main"].function
    for _, value in bindings(function):
        definition = op_def(value)
        if definition is not None and str(getattr(value.ty, "dtype", "")) == "float32":
            used.add(definition.name)
    assert used <= {"rten.transpose", "rten.slice"}
