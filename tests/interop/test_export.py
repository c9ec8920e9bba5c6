"""Graphs as ONNX: valid, with RTen's types, and with the meaning that the graph has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from rten_aot.errors import CompileError, ModelFormatError, UnsupportedOpError
from rten_aot.format import Graph, Model, OpNode, Value
from rten_aot.format.nodes import attrs_table
from rten_aot.format.schema import load_schema
from rten_aot.interop.attributes import onnx_attributes
from rten_aot.interop.export import export_onnx, to_onnx
from rten_aot.interop.reference import run_reference
from rten_aot.interop.rules import RULES
from tests.interop.models import Array, Op, graph, model

F: Any = ("float32", (2, 3))
I: Any = ("int32", (2, 3))  # noqa: E741
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
N = np.array([[1, -2, 3], [4, 0, -6]], np.int32)
BIG = 2**31 - 1


def run(made: Model, *inputs: Array) -> list[Array]:
    """The outputs, of a model that onnx finds valid."""
    onnx.checker.check_model(to_onnx(made), full_check=True)
    return run_reference(made, inputs, threads=1)


def operators(made: Model) -> list[str]:
    return [node.op_type for node in to_onnx(made).graph.node]


def test_every_operator_has_a_rule() -> None:
    assert not set(load_schema().enums["OperatorType"].names) - RULES.keys()


def test_every_attribute_is_one_of_onnx() -> None:
    """What has another place in ONNX than among the attributes is named here."""
    elsewhere = {"axes", "value", "then_branch", "else_branch", "body"}
    samples: dict[str, object] = {"bool": True, "float": 1.0, "string": "ij->ji"}
    for op in load_schema().enums["OperatorType"].names:
        table = attrs_table(load_schema(), op)
        known = onnx.defs.get_schema(op, 21).attributes
        for field in table.fields if table else ():
            value = samples.get(field.type, 2)
            if field.kind == "enum":
                value = load_schema().enums[field.type].names[0]
            elif field.type.startswith("["):
                value = [2, 2]
            elif field.type == "Graph":
                value = Graph((), (), ())
            attrs = onnx_attributes(OpNode("n", op, (), (), {field.name: value}))
            assert set(attrs) <= set(known), (op, field.name)
            assert len(attrs) == (field.name not in elsewhere), (op, field.name)


def test_conditions_are_int32_outside_and_bool_inside() -> None:
    made = model(
        {"x": F, "y": F},
        {},
        [Op("Less", "x y", "l"), Op("Where", "l x y", "z"), Op("Add", "l l", "two")],
        "z two l",
    )
    assert operators(made) == ["Less", "Where", "Cast", "Add"]
    z, two, less = run(made, X, X.T.copy().reshape(2, 3))
    np.testing.assert_array_equal(two, 2 * less)
    assert [y.dtype.name for y in (z, two, less)] == ["float32", "int32", "int32"]


def test_shapes_are_int64_only_where_onnx_wants_them() -> None:
    made = model(
        {"x": F, "y": ("float32", (3, 2))},
        {},
        [Op("Shape", "y", "s", {"start": None, "end": None}), Op("Reshape", "x s", "z")],
        "z s",
    )
    assert operators(made) == ["Shape", "Reshape", "Cast"]
    z, s = run(made, X, np.zeros((3, 2), np.float32))
    np.testing.assert_array_equal(z, X.reshape(3, 2))
    assert (s.dtype.name, s.tolist()) == ("int32", [3, 2])


def test_constants_have_the_type_that_is_wanted() -> None:
    made = model({"x": F}, {"axes": [0]}, [Op("Unsqueeze", "x axes", "y")], "y")
    (stored,) = to_onnx(made).graph.initializer
    assert stored.data_type == onnx.TensorProto.INT64
    assert run(made, X)[0].shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Sum", np.array([[1, -2, 3], [4, 0, -6]]) * 3),
        ("Mean", N),
        ("Max", N),
        ("Min", N),
    ],
)
def test_integers_in_operators_for_floats(op: str, expected: Array) -> None:
    made = model({"n": I}, {}, [Op(op, "n n n", "m")], "m")
    (m,) = run(made, N)
    assert m.dtype == np.int32
    np.testing.assert_array_equal(m, expected)


def test_integers_wrap() -> None:
    made = model(
        {"n": I},
        {},
        [Op("Sum", "n n", "s"), Op("ReduceSum", "n -", "r", {"axes": [1], "keep_dims": False})],
        "s r",
    )
    s, r = run(made, np.full((2, 3), BIG, np.int32))
    np.testing.assert_array_equal(s, np.full((2, 3), -2, np.int32))
    np.testing.assert_array_equal(r, np.full(2, BIG - 2, np.int32))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_eight_bit_operators(kind: Any) -> None:
    made = model(
        {"b": (kind, (2, 3))},
        {},
        [
            Op("Add", "b b", "c"),
            Op("Trilu", "b -", "t", {"upper": True}),
        ],
        "c t",
    )
    b = np.array([[1, 2, 100], [4, 127, 6]], kind)
    c, t = run(made, b)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(c, b + b)
    np.testing.assert_array_equal(t, np.triu(b))


def test_floored_remainder_of_floats() -> None:
    y = np.array([[-2, 3, 2.5], [3, -3, 4]], np.float32)
    made = model({"x": F, "y": F}, {}, [Op("Mod", "x y", "z", {"fmod": False})], "z")
    np.testing.assert_allclose(run(made, X, y)[0], np.mod(X, y), rtol=1e-6)


def test_operands_left_out_and_results_unused() -> None:
    made = model(
        {"x": F},
        {"high": np.float32(2), "k": 1},
        [
            Op("Clip", "x - high", "c"),
            Op("TopK", "x k", "- i", {"axis": 1, "largest": True, "sorted": True}),
        ],
        "c i",
    )
    c, i = run(made, X)
    np.testing.assert_array_equal(c, np.minimum(X, 2))
    assert (i.dtype.name, i.tolist()) == ("int32", [[2], [1]])


def test_settings_for_two_axes_of_an_operator_on_one() -> None:
    """As rten-convert writes them where the ONNX model says nothing."""
    attrs = {
        "auto_pad": "NotSet",
        "pads": [0, 0, 0, 0],
        "strides": [1, 1],
        "dilations": [1, 1],
        "groups": 1,
    }
    made = model(
        {"x": ("float32", (1, 2, 5))},
        {"w": np.ones((1, 2, 3), np.float32)},
        [Op("Conv", "x w", "y", attrs)],
        "y",
    )
    assert run(made, np.ones((1, 2, 5), np.float32))[0].tolist() == [[[6, 6, 6]]]


def test_empty_operands_of_resize_are_left_out() -> None:
    attrs = {"mode": "Nearest", "coord_mode": "Asymmetric", "nearest_mode": "Floor"}
    made = model(
        {"x": ("float32", (1, 1, 1, 2))},
        {"none": np.zeros(0, np.float32), "sizes": [1, 1, 2, 4]},
        [Op("Resize", "x none none sizes", "y", attrs)],
        "y",
    )
    x = np.array([[[[1, 2]]]], np.float32)
    assert run(made, x)[0].tolist() == [[[[1, 1, 2, 2]] * 2]]


def test_names_are_made_unique() -> None:
    nodes = (
        Value("v", (2,), "float32"),
        Value("v", (2,), "float32"),
        Value("", None, None),
        OpNode("n", "Add", (0, 1), (2,)),
        Value("v", None, None),
        OpNode("n", "Neg", (2,), (4,)),
    )
    made = Model(Graph(nodes, (0, 1), (4, 2, 2)), "rten-v2", "")
    proto = to_onnx(made)
    assert [i.name for i in proto.graph.input] == ["v", "v_2"]
    assert [o.name for o in proto.graph.output] == ["v_3", "output_1", "output_2"]
    assert [n.name for n in proto.graph.node][:2] == ["n", "n_2"]
    a, b, c = run(made, np.ones(2, np.float32), np.ones(2, np.float32))
    assert (a.tolist(), b.tolist(), c.tolist()) == ([-2, -2], [2, 2], [2, 2])


def test_inputs_and_constants_as_outputs() -> None:
    made = model({"x": F}, {"k": [7]}, [], "x k x")
    x, k, again = run(made, X)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(again, X)
    assert (k.dtype.name, k.tolist()) == ("int32", [7])


def test_branches_capture() -> None:
    branch = graph({}, {"one": 1.0}, [Op("Add", "x one", "y")], "y", captures="x")
    other = graph({}, {}, [], "x", captures="x")
    made = model(
        {"c": ("int32", ()), "x": F},
        {},
        [Op("If", "c", "z", {"then_branch": branch, "else_branch": other})],
        "z",
    )
    for flag, expected in ((1, X + 1), (0, X)):
        np.testing.assert_array_equal(run(made, np.array(flag, np.int32), X)[0], expected)


def test_a_loop_counts_carries_and_scans() -> None:
    body = graph(
        {"i": ("int32", ()), "go": ("int32", ()), "sum": ("int32", (1,))},
        {"few": [20]},
        [
            Op("Add", "sum step", "next"),
            Op("Add", "next i", "seen"),
            Op("Less", "next few", "less"),
            Op("Squeeze", "less", "on"),
        ],
        "on next seen",
        captures="step",
    )
    made = model(
        {"step": ("int32", (1,))},
        {"count": 9, "true": 1, "start": [0]},
        [Op("Loop", "count true start", "last all", {"body": body})],
        "last all",
    )
    # Whose shape onnx cannot infer, so that it finds the model not valid.
    last, scanned = run_reference(made, [np.array([8], np.int32)], threads=1)
    assert (last.tolist(), scanned.tolist()) == ([24], [[8], [17], [26]])
    assert scanned.dtype == np.int32


def test_sequences() -> None:
    made = model(
        {"x": F},
        {"one": 1},
        [
            Op("SequenceConstruct", "x x", "s"),
            Op("SequenceInsert", "s x -", "t"),
            Op("SequenceLength", "t", "n"),
            Op("SequenceAt", "t one", "y"),
            Op("ConcatFromSequence", "t", "c", {"axis": 0, "new_axis": True}),
        ],
        "n y c",
    )
    n, y, c = run(made, X)
    assert (n.dtype.name, n.tolist(), y.tolist(), c.shape) == ("int32", 3, X.tolist(), (3, 2, 3))


def test_metadata_and_versions() -> None:
    made = model({"x": F}, {}, [Op("Neg", "x", "y")], "y", license="MIT", description="It negates.")
    proto = to_onnx(made)
    assert {p.key: p.value for p in proto.metadata_props} == {
        "license": "MIT",
        "description": "It negates.",
    }
    assert (proto.producer_name, proto.doc_string) == ("rten-aot", "It negates.")
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 21)]


def test_dimensions_keep_their_names() -> None:
    made = model({"x": ("float32", ("batch", None, 3))}, {}, [Op("Neg", "x", "y")], "y")
    dims = to_onnx(made).graph.input[0].type.tensor_type.shape.dim
    assert [(d.dim_param, d.dim_value) for d in dims] == [("batch", 0), ("", 0), ("", 3)]
    assert not dims[1].HasField("dim_value")


def test_large_weights_lie_beside_the_model(tmp_path: Path) -> None:
    weights = np.arange(1200, dtype=np.float32).reshape(3, 400)
    made = model(
        {"x": F},
        {"w": weights, "axes": [0]},
        [Op("MatMul", "x w", "m"), Op("Unsqueeze", "m axes", "y")],
        "y",
    )
    path = tmp_path / "m.onnx"
    assert export_onnx(made, path) is None
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    assert export_onnx(made, path, inline_limit=1000) == tmp_path / "m.onnx.data"
    assert path.stat().st_size < 1000
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, (X @ weights)[None])


def test_errors_name_the_node() -> None:
    attrs = {"kernel_size": [2], "auto_pad": "NotSet", "pads": [], "strides": [1]}
    made = model({"x": ("float32", (1, 1, 4))}, {}, [Op("MaxPool", "x", "y i", attrs)], "y i")
    with pytest.raises(UnsupportedOpError, match=r'"y" \(MaxPool\): output 1 cannot be written'):
        to_onnx(made)
    strange = model({"x": F}, {}, [Op("Strange", "x", "y")], "y")
    with pytest.raises(UnsupportedOpError, match=r'"y" \(Strange\): cannot be written as ONNX'):
        to_onnx(strange)
    nodes = (Value("x", (2,), "float32"), Value("y", None, None), Value("z", None, None))
    cut = Graph((*nodes, OpNode("n", "Add", (0, 1), (2,))), (0,), (2,))
    with pytest.raises(ModelFormatError, match='"y" is used before anything computes it'):
        to_onnx(Model(cut, "rten-v2", ""))


def test_onnx_runtime_failures_are_told() -> None:
    made = model({"x": F}, {"s": [4, 2]}, [Op("Reshape", "x s", "y", {"allow_zero": False})], "y")
    with pytest.raises(CompileError, match=r"^ONNX Runtime cannot run the model: "):
        run_reference(made, [X])
