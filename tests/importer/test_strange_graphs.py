"""Whole graphs of unusual form: what is valid gives the right numbers, the rest is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import helper
from rten_convert.converter import Metadata, graph_from_onnx_graph, serialize_model

import rten_aot
from rten_aot.errors import CompileError
from rten_aot.format.graph import Constant, Dim, DType, Graph, Node, OpNode, Value
from tests.ops.test_control_flow import GraphMaker, branch, compiled
from tests.support.rten_writer import encode, write_model

Array = npt.NDArray[Any]
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
K = np.array([7, 8], np.int32)


def value(name: str, shape: Sequence[Dim] | None = None, dtype: DType = "float32") -> Value:
    return Value(name, None if shape is None else tuple(shape), None if shape is None else dtype)


def op(
    kind: str, inputs: Sequence[int | None], outputs: Sequence[int | None], **attrs: Any
) -> OpNode:
    return OpNode("n", kind, tuple(inputs), tuple(outputs), attrs)


def graph(nodes: Sequence[Node], outputs: Sequence[int], inputs: Sequence[int] = (0,)) -> Graph:
    return Graph(tuple(nodes), tuple(inputs), tuple(outputs))


INPUT, FREE = value("x", (2, 3)), value("x", ("rows", None))
RELU = op("Relu", [0], [1])
POSITIVE = np.maximum(X, 0)

VALID: dict[str, tuple[Graph, dict[str, Array]]] = {
    "nothing": (graph([], [], []), {}),
    "no-outputs": (graph([INPUT, value("y"), RELU], []), {}),
    "an-output-is-an-input": (graph([INPUT], [0]), {"x": X}),
    "an-output-is-a-free-input-twice": (graph([FREE], [0, 0]), {"x": X, "x_2": X}),
    "an-output-is-a-constant": (graph([Constant("k", K)], [0, 0], []), {"k": K, "k_2": K}),
    "outputs-of-all-kinds": (
        graph([INPUT, value("y"), RELU, Constant("k", K)], [3, 1, 0, 1, 3]),
        {"k": K, "y": POSITIVE, "x": X, "y_2": POSITIVE, "k_2": K},
    ),
    "an-operator-without-outputs": (graph([INPUT, op("Relu", [0], [])], [0]), {"x": X}),
    "an-operator-with-an-unused-output": (graph([INPUT, op("Relu", [0], [None])], [0]), {"x": X}),
    "an-unused-output-too-many": (
        graph([INPUT, value("y"), value("z"), op("Relu", [0], [1, 2])], [1]), {"y": POSITIVE},
    ),
    "only-a-later-output-is-used": (
        graph([INPUT, value("y"), value("k", (1,), "int32"),
               op("TopK", [0, 2], [None, 1], axis=1, largest=True, sorted=True)], [1], [0, 2]),
        {"y": np.array([[2], [1]], np.int32)},
    ),
    "one-name-for-nodes-of-all-kinds": (
        graph([value("n", (2, 3)), value("n"), RELU, value("n"), op("Neg", [1], [3]),
               Constant("n", np.float32(1)), value("n"), op("Add", [3, 5], [6])], [6, 1, 0]),
        {"n": 1 - POSITIVE, "n_2": POSITIVE, "n_3": X},
    ),
    "no-names": (
        graph([value("", (2, 3)), value(""), RELU, value(""), op("Neg", [1], [3])], [3, 1]),
        {"output_0": -POSITIVE, "output_1": POSITIVE},
    ),
    "names-with-all-characters": (
        graph([value('a b/c:0"\\\n\té%s', (2, 3)), value("%n ; { }"), RELU], [1]),
        {"%n ; { }": POSITIVE},
    ),
    "an-unknown-size-is-written-as-0": (graph([value("x", (0, 3)), value("y"), RELU], [1]),
                                        {"y": POSITIVE}),
    "the-input-has-no-type": (graph([Value("x", (2, 3), None), value("y"), RELU], [1]),
                              {"y": POSITIVE}),
    "32-axes": (
        graph([value("x", (2, 3, *[1] * 30)), value("y"), value("z"),
               op("Transpose", [0], [1], perm=None),
               op("ReduceSum", [0], [2], axes=None, keep_dims=False)], [1, 2]),
        {"y": X.T.reshape(*[1] * 30, 3, 2), "z": np.array(-3, np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", VALID)
def test_valid(case: str, tmp_path: Path) -> None:
    model, expected = VALID[case]
    loaded = compiled(model, tmp_path)
    feeds = {t.name: X.reshape(X.shape + (1,) * (len(t.shape) - 2)) for t in loaded.inputs}
    if "k" in feeds:
        feeds["k"] = np.array([1], np.int32)
    results = loaded.run(feeds)
    assert list(results) == list(expected)
    for name, want in expected.items():
        assert results[name].dtype == want.dtype
        np.testing.assert_array_equal(results[name], want)


@pytest.mark.parametrize("size", ["n", 0])
def test_nothing_everywhere(size: Dim, tmp_path: Path) -> None:
    """Tensors without elements through operators of every kind, known now or with the data."""
    g = GraphMaker()
    x = g.input("x", (size, 3)) if size else g.constant("x", np.zeros((0, 3), np.float32))
    across = g.op("Transpose", x, perm=(1, 0))
    results = {
        g.op("MatMul", across, x): np.zeros((3, 3)),
        g.op("MatMul", x, across): np.zeros((0, 0)),
        g.op("Softmax", x, axis=1): np.zeros((0, 3)),
        g.op("Softmax", x, axis=0): np.zeros((0, 3)),
        g.op("ReduceMax", x, axes=(0,), keep_dims=True): np.full((1, 3), -np.inf),
        g.op("ReduceMax", x, axes=(1,), keep_dims=False): np.zeros(0),
        g.op("CumSum", x, g.constant("axis", np.int32(0))): np.zeros((0, 3)),
        g.op("Concat", x, x, axis=0): np.zeros((0, 3)),
        g.op("Gather", x, g.constant("none", np.zeros((0, 2), np.int32)), axis=0): np.zeros(
            (0, 2, 3)
        ),
        g.op("NonZero", x): np.zeros((2, 0)),
        g.op("Tile", x, g.constant("twice", np.int32([2, 1]))): np.zeros((0, 3)),
        g.op("Einsum", x, x, equation="ij,ik->jk"): np.zeros((3, 3)),
    }
    picture = g.op("Unsqueeze", x, g.constant("in_front", np.int32([0, 1])))
    window = {"kernel_size": [2, 2], "strides": [1, 1], "pads": [1] * 4, "ceil_mode": False}
    pads = {**window, "auto_pad": "NotSet"}
    same = {**window, "auto_pad": "Same", "strides": [2, 2]}
    results |= {
        g.op("AveragePool", picture, **pads, count_include_pad=False): [[[[np.nan] * 4]]],
        g.op("AveragePool", picture, **pads, count_include_pad=True): np.zeros((1, 1, 1, 4)),
        g.op("AveragePool", picture, **same, count_include_pad=False): np.zeros((1, 1, 0, 2)),
        g.op("MaxPool", picture, **pads): [[[[-np.inf] * 4]]],
        g.op("GlobalAveragePool", picture): np.full((1, 1, 1, 1), np.nan),
        g.op("Resize", picture, None, g.constant("scales", np.float32([1, 1, 2, 2])),
             mode="Linear", coord_mode="HalfPixel", nearest_mode="Floor"): np.zeros((1, 1, 0, 6)),
    }  # fmt: skip
    model = compiled(g.graph(*results), tmp_path)
    got = model(*[np.zeros((0, 3), np.float32)] * len(model.inputs))
    for actual, want in zip(got, results.values(), strict=True):
        np.testing.assert_array_equal(actual, want)


@pytest.mark.parametrize("known", [False, True])
def test_branches_as_deep_as_files_may_have_them(known: bool, tmp_path: Path) -> None:
    inner = branch(lambda g: g.op("Neg", g.capture("x")))
    for _ in range(31):
        other = branch(lambda g: g.op("Relu", g.capture("x")))
        inner = branch(
            lambda g, then=inner, otherwise=other: g.op(
                "If", g.capture("c"), then_branch=then, else_branch=otherwise
            )
        )
    g = GraphMaker()
    g.input("x", ("n", 3))
    c = g.constant("c", np.int32(1)) if known else g.input("c", (), "int32")
    model = compiled(g.graph(g.op("If", c, then_branch=inner, else_branch=inner)), tmp_path)
    for condition in [1] if known else [0, 1]:
        (result,) = model(X) if known else model(X, condition)
        np.testing.assert_array_equal(result, -X if condition else POSITIVE)


@pytest.mark.parametrize("kind", ["MatMul", "ReduceSum", "Exp", "Gather"])
def test_a_constant_whose_shape_only_a_run_tells(kind: str, tmp_path: Path) -> None:
    """Weights large enough to be mapped at once are reshaped by the size of an input."""
    g = GraphMaker()
    x = g.input("x", ("k",))
    target = g.op("Concat", g.op("Shape", x), g.constant("rest", np.int32([-1])), axis=0)
    weights = np.random.default_rng(0).standard_normal((300, 256), np.float32)
    w = g.op("Reshape", g.constant("w", weights), target, allow_zero=False)
    result = {
        "MatMul": lambda: g.op("MatMul", x, w),
        "ReduceSum": lambda: g.op("ReduceSum", w, axes=(1,), keep_dims=False),
        "Exp": lambda: g.op("Exp", w),
        "Gather": lambda: g.op("Gather", w, g.constant("last", np.int32([-1])), axis=0),
    }[kind]()
    model = compiled(g.graph(result), tmp_path)
    for k in (300, 100, 256):
        data, reshaped = np.ones(k, np.float32), weights.reshape(k, -1)
        wanted = {"MatMul": data @ reshaped, "ReduceSum": reshaped.sum(1), "Exp": np.exp(reshaped),
                  "Gather": reshaped[-1:]}  # fmt: skip
        np.testing.assert_allclose(model(data)[0], wanted[kind], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Relu", "MatMul", "Softmax", "CumSum", "Concat"])
def test_long_chains(kind: str, tmp_path: Path) -> None:
    """No operator is reached by recursion over all before it, and none takes time for them."""
    g = GraphMaker()
    x = y = g.input("x", ("n", 4))
    eye, zero = g.constant("eye", np.eye(4, dtype=np.float32)), g.constant("axis", np.int32(0))
    operands = {"MatMul": [eye], "CumSum": [zero]}.get(kind, [])
    attrs = {"Softmax": {"axis": 1}, "Concat": {"axis": 0}}.get(kind, {})
    count = 100 if kind == "Concat" else 5000
    for i in range(count):
        if kind == "Concat":
            operands = [x]
        y = g.op("Neg" if kind == "Relu" and i % 2 else kind, y, *operands, **attrs)
    data = np.float32([[1, 2, 3, 4]])
    (result,) = compiled(g.graph(y), tmp_path)(data)
    expected = {
        "Relu": np.zeros((1, 4)), "Softmax": np.full((1, 4), 0.25),
        "Concat": np.tile(data, (count + 1, 1)),
    }  # fmt: skip
    np.testing.assert_allclose(result, expected.get(kind, data))


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("axis", [0, 1])
def test_concat_of_many_of_free_sizes(axis: int, count: int, tmp_path: Path) -> None:
    g = GraphMaker()
    shapes = [("rows", f"n{i}") if axis else (f"n{i}", 2) for i in range(count)]
    inputs = [g.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    model = compiled(g.graph(g.op("Concat", *inputs, axis=axis)), tmp_path)
    rng = np.random.default_rng(0)
    data = [rng.random((2, i % 9) if axis else (i % 9, 2), np.float32) for i in range(count)]
    np.testing.assert_array_equal(model(*data)[0], np.concatenate(data, axis))


@pytest.mark.parametrize("outputs", [2, 3, 5])
def test_outputs_for_training_that_nothing_uses(outputs: int, tmp_path: Path) -> None:
    """Models of old operator sets name those of BatchNormalization."""
    names = ["x", "scale", "bias", "mean", "variance"]
    results = ["y", *(f"unused{i}" for i in range(1, outputs))]
    node = helper.make_node("BatchNormalization", names, results, name="bn")
    inputs = [helper.make_tensor_value_info("x", 1, [2, 3])]
    inputs += [helper.make_tensor_value_info(name, 1, [3]) for name in names[1:]]
    outputs_ = [helper.make_empty_tensor_value_info("y")]
    converted = graph_from_onnx_graph(helper.make_graph([node], "g", inputs, outputs_))
    data = serialize_model(converted, Metadata(onnx_hash="0" * 64), None)
    (tmp_path / "m.rten").write_bytes(bytes(data))
    model = rten_aot.load(rten_aot.compile(tmp_path / "m.rten", target="llvm -mcpu=native"))
    ones = np.ones(3, np.float32)
    np.testing.assert_allclose(model(X, ones, ones, ones, ones)[0], X, rtol=1e-4, atol=1e-4)


BAD: dict[str, tuple[Graph, str]] = {
    "cycle": (
        graph([INPUT, value("a"), value("b"), op("Add", [0, 2], [1]), op("Neg", [1], [2])], [2]),
        'in node "n" (Add): depends on its own output: "n" -> "n" -> "n"',
    ),
    "two-producers": (
        graph([INPUT, value("y"), RELU, op("Neg", [0], [1])], [1]),
        'in node "n" (Neg): output 0 cannot be "y", which already comes from operator "n"',
    ),
    "no-producer": (
        graph([INPUT, value("y")], [1]), 'graph output 0 is "y", which nothing produces',
    ),
    "too-many-inputs": (
        graph([INPUT, value("y"), op("Relu", [0, 0], [1])], [1]),
        'in node "n" (Relu): has 2 inputs; supported: 1',
    ),
    "an-unnamed-node": (
        graph([INPUT, value("y"), OpNode("", "Concat", (0, 0), (1,), {"axis": 7})], [1]),
        'in an unnamed node (Concat), attribute "axis": value 7 is out of range',
    ),
    "too-few-inputs": (
        graph([INPUT, value("y"), op("Clip", [], [1])], [1]),
        'in node "n" (Clip): has 0 inputs; supported: 1 to 3\nhint: an ONNX model of an old '
        "operator set must be brought to 13 or later, by onnx.version_converter",
    ),
    "a-missing-input": (
        graph([INPUT, value("y"), op("Add", [None, 0], [1])], [1]),
        'in node "n" (Add): input 0 is missing',
    ),
    "a-missing-input-of-many": (
        graph([INPUT, value("y"), op("Max", [0, None], [1])], [1]),
        'in node "n" (Max): input 1 is missing',
    ),
    "no-inputs-at-all": (
        graph([INPUT, value("y"), op("Concat", [], [1], axis=0)], [1]),
        'in node "n" (Concat): has no inputs',
    ),
    "an-output-that-is-none": (
        graph([INPUT, value("y"), value("z"), op("Relu", [0], [1, 2])], [2]),
        'in node "n" (Relu): output 1 is not supported',
    ),
    "no-shape": (
        graph([value("x"), value("y"), RELU], [1]), 'input "x" has no shape in the file\nhint: ',
    ),
    "an-input-that-is-too-large": (
        graph([value("x", [2**32 - 1] * 3), value("y"), RELU], [1]),
        'no memory can hold input "x" of shape [4294967295, 4294967295, 4294967295]',
    ),
    "a-result-that-is-too-large": (
        graph([Constant("s", np.full(3, 2**31 - 1, np.int32)), value("y"),
               op("ConstantOfShape", [0], [1], value=0)], [1], []),
        'in node "n" (ConstantOfShape): no memory can hold a result of shape '
        "[2147483647, 2147483647, 2147483647]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refused(case: str, tmp_path: Path) -> None:
    model, message = BAD[case]
    with pytest.raises(CompileError) as caught:
        compiled(model, tmp_path)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("case", ["cycle", "an-input-that-is-too-large", "a-missing-input"])
def test_the_command_refuses_them_too(case: str, tmp_path: Path) -> None:
    model, message = BAD[case]
    path = write_model(model, tmp_path / "bad.rten")
    command = [sys.executable, "-m", "rten_aot", "compile", str(path), "--target", "llvm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"rten-aot: error: {message}\n"


@pytest.mark.parametrize("command", ["compile", "inspect"])
def test_the_command_lists_all_that_is_not_known(command: str, tmp_path: Path) -> None:
    def node(name: str, kind: int) -> dict[str, Any]:
        return {"name": name, "data": ("OperatorNode", {"type": kind})}

    branches = {"then_branch": {"nodes": [node("inner", 201)]}, "else_branch": {}}
    choice = {"type": "If", "attrs": ("IfAttrs", branches)}
    nodes = [node("first", 200), {"name": "if", "data": ("OperatorNode", choice)}]
    path = tmp_path / "newer.rten"
    path.write_bytes(encode({"schema_version": 1, "graph": {"nodes": nodes}}))
    done = subprocess.run(
        [sys.executable, "-m", "rten_aot", command, str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "rten-aot: error: 2 nodes use what is not known here:",
        '  in node "first": operator number 200 is not known',
        '  in node "inner": operator number 201 is not known',
        "hint: the file may come from a newer RTen; convert the model with rten-convert 0.22",
    ]


def test_sizes_that_only_a_run_can_have_too_large(tmp_path: Path) -> None:
    """More than 2^31 elements, known by name only, or of a product of such sizes."""
    g = GraphMaker()
    flat = g.op("Reshape", g.input("x", ("n", "m")), g.constant("s", np.int32([-1])), allow_zero=0)
    column = g.op("Unsqueeze", flat, g.constant("a", np.int32([1])))
    square = g.op("CumSum", g.op("Add", column, flat), g.constant("axis", np.int32(0)))
    path = write_model(g.graph(square), tmp_path / "m.rten")
    model = rten_aot.load(rten_aot.compile(path, target="llvm -mcpu=native"))
    np.testing.assert_array_equal(model(X[:1, :2])[0], [[2, -1], [1, -5]])
    for rows in (1 << 17, 1 << 21):
        with pytest.raises(rten_aot.ModelRunError, match="out of memory"):
            model(np.zeros((rows, 64), np.float32))
    with pytest.raises(CompileError, match="no memory can hold a result of shape"):
        rten_aot.compile(path, tmp_path / "n.so", dims={"n": 1 << 20, "m": 1 << 20})
