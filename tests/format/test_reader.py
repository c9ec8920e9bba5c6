"""Reading whole files: what rten-convert writes, and what our own writer makes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rten_aot.errors import ModelFormatError
from rten_aot.format import (
    Constant,
    Graph,
    Node,
    OpNode,
    Value,
    read_model,
    read_model_bytes,
)
from tests.support.rten_writer import container, encode, plain, raw_graph, write_model

NAMES = ["cnn", "branches", "quantized"]


def operators(graph: Graph) -> dict[str, OpNode]:
    return {node.name: node for node in graph.nodes if isinstance(node, OpNode)}


def names(graph: Graph, indices: tuple[int | None, ...]) -> list[str | None]:
    return [None if i is None else graph.nodes[i].name for i in indices]


@pytest.mark.parametrize("name", NAMES)
def test_versions_agree(real_models: Mapping[str, Path], name: str) -> None:
    one, two = (read_model(real_models[f"{name}-{version}"]) for version in ("v1", "v2"))
    assert (one.format, two.format) == ("rten-v1", "rten-v2")
    assert plain(one.graph) == plain(two.graph)
    onnx_hash = hashlib.sha256(real_models[f"{name}-v1"].with_name(f"{name}.onnx").read_bytes())
    assert one.metadata == two.metadata == {"onnx_hash": onnx_hash.hexdigest()}
    assert one.sha256 == hashlib.sha256(real_models[f"{name}-v1"].read_bytes()).hexdigest()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_round_trip(
    real_models: Mapping[str, Path], tmp_path: Path, name: str, version: int, external: bool
) -> None:
    model = read_model(real_models[f"{name}-v2"])
    metadata = {"description": "größer als klein", "license": "MIT"}
    path = write_model(
        model.graph,
        tmp_path / "again.rten",
        version=version,
        metadata=metadata,
        external_data=external,
    )
    again = read_model(path)
    assert again.format == f"rten-v{version}"
    assert again.metadata == metadata
    assert plain(again.graph) == plain(model.graph)


def test_convolution_model(real_models: Mapping[str, Path]) -> None:
    graph = read_model(real_models["cnn-v2"]).graph
    # The weight is listed as an input, but has a value: it is a constant.
    assert names(graph, graph.inputs) == ["x"]
    assert names(graph, graph.outputs) == ["f", "shape"]
    assert graph.nodes[graph.inputs[0]] == Value("x", ("batch", 3, None, None), "float32")
    conv = operators(graph)["conv"]
    assert names(graph, conv.inputs) == ["x", "w"]
    assert conv.attrs == {
        "auto_pad": "NotSet",
        "pads": (1, 1, 1, 1),
        "groups": 1,
        "strides": (1, 1),
        "dilations": (1, 1),
    }
    assert operators(graph)["shape"].attrs == {"start": None, "end": None}
    assert operators(graph)["relu"].attrs == {}


def test_branches_capture_from_any_enclosing_graph(real_models: Mapping[str, Path]) -> None:
    graph = read_model(real_models["branches-v2"]).graph
    then_branch = operators(graph)["if"].attrs["then_branch"]
    assert isinstance(then_branch, Graph)
    assert names(then_branch, then_branch.captures) == ["p"]
    inner = operators(then_branch)["if2"].attrs["then_branch"]
    assert isinstance(inner, Graph)
    # rten-convert also lists the branch's own constant and a nameless value for the input left out.
    assert names(inner, inner.captures) == ["y"]
    assert names(inner, operators(inner)["clip"].inputs) == ["y", None, "top"]


def test_unused_outputs_and_all_data_types(real_models: Mapping[str, Path]) -> None:
    graph = read_model(real_models["quantized-v2"]).graph
    assert names(graph, operators(graph)["lstm"].outputs) == [None, "h"]
    dtypes = {node.name: node.data.dtype.name for node in graph.nodes if isinstance(node, Constant)}
    assert dtypes.items() >= {"s": "float32", "zx": "uint8", "w": "int8"}.items()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_constants_are_views_of_the_file(real_models: Mapping[str, Path], version: str) -> None:
    data = real_models[f"cnn-{version}"].read_bytes()
    whole = np.frombuffer(data, np.uint8)
    for node in read_model_bytes(data).graph.nodes:
        if isinstance(node, Constant):
            assert not node.data.flags.writeable
            assert np.shares_memory(node.data, whole)
    mapped = read_model(real_models[f"cnn-{version}"])
    constants = [node.data for node in mapped.graph.nodes if isinstance(node, Constant)]
    assert all(not data.flags.writeable and not data.flags.owndata for data in constants)


def test_tensor_data_may_lie_anywhere(tmp_path: Path) -> None:
    floats = np.arange(3, dtype="<f4")
    nodes = [
        {
            "name": "odd",
            "data": ("ConstantNode", {"shape": [3], "dtype": "Float32", "data_offset": 3}),
        },
        {
            "name": "end",
            "data": ("ConstantNode", {"shape": [0, 5], "dtype": "Int8", "data_offset": 15}),
        },
    ]
    model = encode({"schema_version": 1, "graph": {"nodes": nodes, "outputs": [0]}})
    graph = read_model_bytes(container(model, b"abc" + floats.tobytes())).graph
    odd, end = graph.nodes
    assert isinstance(odd, Constant)
    assert isinstance(end, Constant)
    np.testing.assert_array_equal(odd.data, floats)
    assert end.data.shape == (0, 5)


@pytest.mark.parametrize(
    ("raw", "dim"),
    [
        ({"value": 7}, 7),
        ({"value": 0}, None),
        ({}, None),
        ({"name": "batch"}, "batch"),
        ({"name": "batch", "value": 3}, "batch"),
        ({"name": ""}, None),
        ({"name": "?"}, None),
        ({"name": "-1"}, None),
        ({"name": "unknown"}, None),
        ({"value": 2**32 - 1}, 2**32 - 1),
    ],
)
def test_dimensions(raw: dict[str, Any], dim: object) -> None:
    value = {"name": "x", "data": ("ValueNode", {"shape": [raw], "dtype": "UInt8"})}
    model = encode({"schema_version": 1, "graph": {"nodes": [value], "inputs": [0]}})
    assert read_model_bytes(model).graph.nodes[0] == Value("x", (dim,), "uint8")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["Int32", "Float", "Int8", "UInt8"])
def test_older_constants_take_their_type_from_the_data(dtype: str) -> None:
    node = {"data": ("ConstantNode", {"shape": [], "data": (f"{dtype}Data", {"data": [5]})})}
    model = encode({"schema_version": 1, "graph": {"nodes": [node], "outputs": [0, 0]}})
    graph = read_model_bytes(model).graph
    constant = graph.nodes[0]
    assert isinstance(constant, Constant)
    assert constant.data.dtype.name == {"Float": "float32"}.get(dtype, dtype.lower())
    assert constant.data.shape == ()
    assert graph.outputs == (0, 0)


def test_empty_graph_and_no_metadata() -> None:
    model = read_model_bytes(encode({"schema_version": 1, "graph": {}}))
    assert plain(model.graph) == ((), (), (), ())
    assert model.metadata == {}


def test_fields_that_only_describe_may_be_new() -> None:
    data = bytearray(encode({"schema_version": 1, "graph": {}, "metadata": {"run_url": "u"}}))
    # A later schema's ninth field of Metadata, placed on top of the eighth.
    root = int.from_bytes(data[:4], "little")
    table = _target(data, root + _slot(data, root, 2))
    vtable = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    longer = bytearray(data[vtable : vtable + 20]) + data[vtable + 18 : vtable + 20]
    longer[0:2] = (22).to_bytes(2, "little")
    data += longer
    data[table : table + 4] = (table - (len(data) - 22)).to_bytes(4, "little", signed=True)
    assert read_model_bytes(bytes(data)).metadata == {"run_url": "u"}


def _slot(data: bytearray, table: int, slot: int) -> int:
    vtable = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    return int.from_bytes(data[vtable + 4 + 2 * slot : vtable + 6 + 2 * slot], "little")


def _target(data: bytearray, pos: int) -> int:
    return pos + int.from_bytes(data[pos : pos + 4], "little")


ARRAYS = st.sampled_from([np.int32, np.float32, np.int8, np.uint8]).flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0))
)
DIMS = st.one_of(
    st.none(),
    st.integers(1, 2**32 - 1),
    st.text(min_size=1).filter(lambda text: text not in ("?", "-1", "unknown")),
)
VALUES = st.builds(
    Value,
    st.text(),
    st.none() | st.lists(DIMS, max_size=5).map(tuple),
    st.sampled_from([None, "int32", "float32", "int8", "uint8"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES | st.builds(Constant, st.text(), ARRAYS), max_size=8))
def test_any_nodes_round_trip(nodes: list[Node]) -> None:
    values = tuple(i for i, node in enumerate(nodes) if isinstance(node, Value))
    graph = Graph(tuple(nodes), values, tuple(range(len(nodes))))
    tensors = bytearray()
    model = encode({"schema_version": 1, "graph": raw_graph(graph, tensors)})
    assert plain(read_model_bytes(container(model, bytes(tensors))).graph) == plain(graph)


def test_not_a_model(tmp_path: Path, real_models: Mapping[str, Path]) -> None:
    (tmp_path / "empty.rten").touch()
    with pytest.raises(ModelFormatError, match=r"^the file is empty$"):
        read_model(tmp_path / "empty.rten")
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "absent.rten")
    onnx_file = real_models["cnn-v1"].with_name("cnn.onnx")
    assert onnx.load(onnx_file)
    with pytest.raises(ModelFormatError, match=r"^not a \.rten model: no RTEN mark") as error:
        read_model(onnx_file)
    assert error.value.hint == "convert ONNX models first: rten-convert model.onnx"
