"""Shape arithmetic is done at compile time, symbolic sizes included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from rten_aot.format.graph import Constant, Graph, Model, Node, OpNode, Value
from rten_aot.importer import import_model

Step = tuple[str, Sequence[Any], dict[str, Any]]
"""An operator, the inputs that follow the value which is passed on, and the attributes."""


def i32(values: Any) -> Any:
    return np.array(values, "int32")


def f32(values: Any) -> Any:
    return np.array(values, "float32")


FLOOR, CEIL = ("Floor", [], {}), ("Ceil", [], {})
TO_FLOAT, TO_INT = ("Cast", [], {"to": "Float"}), ("Cast", [], {"to": "Int32"})


def imported(steps: Sequence[Step]) -> tuple[relax.Function, dict[str, tirx.Var]]:
    """A model that sends the shape of x [n, 3, m] through ``steps`` and makes a tensor of it."""
    nodes: list[Node] = [Value("x", ("n", 3, "m"), "float32")]

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    def apply(op: str, inputs: Sequence[int], attrs: dict[str, Any]) -> int:
        result = add(Value(f"v{len(nodes)}", None, None))
        add(OpNode(f"{op}{len(nodes)}", op, tuple(inputs), (result,), attrs))
        return result

    value = apply("Shape", [0], {})
    for op, arrays, attrs in steps:
        inputs = [
            add(Constant(f"c{len(nodes)}_{k}", np.asarray(array))) for k, array in enumerate(arrays)
        ]
        value = apply(op, [value, *inputs], attrs)
    result = apply("ConstantOfShape", [value], {"value": 1})
    model = Model(Graph(tuple(nodes), (0,), (result,)), "rten-v2", "")
    function = import_model(model).functions["main"].function
    n, _, m = function.params[0].ty.shape.values
    return function, {"n": n, "m": m}


def sizes_after(*steps: Step) -> tuple[list[Any], dict[str, tirx.Var]]:
    function, variables = imported(steps)
    return list(function.ret_ty.fields[0].shape.values), variables


def check(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        b = tirx.const(b, "int64") if isinstance(b, int) else b
        assert Analyzer().can_prove_equal(a, b), f"{a} is not {b}"


def test_sums_differences_products() -> None:
    sizes, v = sizes_after(
        ("Mul", [i32([2, 1, 3])], {}), ("Add", [i32(4)], {}), ("Sub", [i32([1, 5, 0])], {})
    )
    check(sizes, [v["n"] * 2 + 3, 2, v["m"] * 3 + 4])


def test_division_of_sizes_rounds_down() -> None:
    sizes, v = sizes_after(("Div", [i32([2, 2, 4])], {}))
    check(
        sizes,
        [
            tirx.floordiv(v["n"], tirx.const(2, "int64")),
            1,
            tirx.floordiv(v["m"], tirx.const(4, "int64")),
        ],
    )


def test_what_cancels_leaves_no_division() -> None:
    sizes, v = sizes_after(("Mul", [i32([6, 1, 4])], {}), ("Div", [i32([3, 3, 4])], {}))
    check(sizes, [v["n"] * 2, 1, v["m"]])


def test_remainders() -> None:
    sizes, v = sizes_after(("Mod", [i32([4, 2, 5])], {"fmod": False}))
    four, five = tirx.const(4, "int64"), tirx.const(5, "int64")
    check(sizes, [tirx.floormod(v["n"], four), 1, tirx.floormod(v["m"], five)])


def test_a_size_is_never_minus_one() -> None:
    sizes, _ = sizes_after(
        ("Equal", [i32(-1)], {}), ("Where", [i32([7, 7, 7]), i32([1, 2, 3])], {})
    )
    check(sizes, [1, 2, 3])


def test_choices_that_depend_on_sizes() -> None:
    sizes, v = sizes_after(
        ("Greater", [i32([5, 2, 1])], {}), ("Where", [i32([7, 8, 9]), i32([1, 2, 3])], {})
    )
    assert sizes[1].value == 8
    for size, n, expected in ((sizes[0], 6, 7), (sizes[0], 5, 1)):
        analyzer = Analyzer()
        analyzer.bind(v["n"], tirx.const(n, "int64"))
        assert int(analyzer.simplify(size).value) == expected


@pytest.mark.parametrize("scale", [2.0, 4.0])
def test_sizes_scaled_as_floats(scale: float) -> None:
    steps = [TO_FLOAT, ("Mul", [f32([1, 1, scale])], {}), FLOOR, TO_INT]
    sizes, v = sizes_after(*steps)
    check(sizes, [v["n"], 3, v["m"] * int(scale)])


def test_numbers_are_computed_in_their_own_type() -> None:
    sizes, _ = sizes_after(
        ("Gather", [i32([1, 1])], {"axis": 0}),
        TO_FLOAT,
        ("Mul", [f32([2.5, 0.9])], {}),
        ("Div", [f32([2, 1])], {}),
        CEIL,
        TO_INT,
    )
    check(sizes, [4, 3])


FLOATS = np.random.default_rng(3).uniform(0.01, 3, 250).astype("float32")


@pytest.mark.parametrize(
    ("op", "attrs", "function"),
    [
        ("Exp", {}, np.exp),
        ("Log", {}, np.log),
        ("Sin", {}, np.sin),
        ("Tanh", {}, np.tanh),
        ("Sigmoid", {}, lambda x: 1 / (1 + np.exp(-x))),
        ("ReduceSum", {"axes": None, "keep_dims": True}, np.sum),
        ("ReduceMean", {"axes": None, "keep_dims": True}, np.mean),
    ],
)
def test_floats_are_rounded_once(
    op: str, attrs: dict[str, Any], function: Callable[[Any], Any]
) -> None:
    """NumPy's float32 functions depend on the CPU that compiles; constants must not."""
    exact = np.atleast_1d(function(FLOATS.astype("float64"))).astype("float32")
    np.testing.assert_array_equal(of_constant(op, FLOATS, attrs), exact)


@pytest.mark.parametrize("op", ["Log", "Sqrt", "Acos"])
def test_computed_nans_are_alike(op: str) -> None:
    """Processors disagree on their sign."""
    result = of_constant(op, np.array([-2, -3], "float32"), {})
    assert result.tobytes() == np.array([np.nan, np.nan], "float32").tobytes()


def of_constant(op: str, array: npt.NDArray[Any], attrs: dict[str, Any]) -> npt.NDArray[Any]:
    """What is left of an operator on a constant."""
    nodes = (Constant("c", array), Value("y", None, None), OpNode(op, op, (0,), (1,), attrs))
    model = import_model(Model(Graph(nodes, (), (1,)), "rten-v2", ""))
    found: list[Any] = []
    relax.analysis.post_order_visit(model.functions["main"].function, found.append)
    (constant,) = [e for e in found if isinstance(e, tvm.ir.GenericConst)]
    result: npt.NDArray[Any] = constant.value.numpy()
    return result


def test_reductions() -> None:
    sizes, v = sizes_after(("ReduceProd", [], {"axes": [0], "keep_dims": True}))
    check(sizes, [v["n"] * 3 * v["m"]])
    sizes, v = sizes_after(("ReduceSum", [i32([0])], {"keep_dims": True}))
    check(sizes, [v["n"] + 3 + v["m"]])


def test_extremes_of_sizes() -> None:
    sizes, v = sizes_after(("Max", [i32([4, 4, 4])], {}), ("Min", [i32([9, 9, 9])], {}))
    for n in (2, 6, 20):
        analyzer = Analyzer()
        analyzer.bind(v["n"], tirx.const(n, "int64"))
        assert int(analyzer.simplify(sizes[0]).value) == min(max(n, 4), 9)


def test_arithmetic_leaves_no_operators_behind() -> None:
    function, _ = imported(
        [("Mul", [i32(2)], {}), TO_FLOAT, ("Add", [f32(1)], {}), TO_INT, ("Div", [i32(2)], {})]
    )
    live = relax.analysis.remove_all_unused(function)
    names = [
        binding.value.op.name
        for block in live.body.blocks
        for binding in block.bindings
        if hasattr(binding.value, "op")
    ]
    assert names == ["rten.full"]
