"""Operators and their attribute tables: every one, with set values and with defaults."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rten_aot.errors import ModelFormatError
from rten_aot.format import Graph, OpNode, Value, read_model_bytes
from rten_aot.format.nodes import attrs_table
from rten_aot.format.schema import Field, load_schema
from tests.support.rten_writer import encode, plain, raw_graph

SCHEMA = load_schema()
OPERATORS = SCHEMA.enums["OperatorType"].names
BRANCH = Graph((Value("b", (2, None), "int32"),), (0,), (0,))


def read_attrs(op: str | int, attrs: Any) -> Any:
    """What the reader makes of one operator with the raw union value ``attrs``."""
    node = {"name": "n", "data": ("OperatorNode", {"type": op, "attrs": attrs})}
    model = encode({"schema_version": 1, "graph": {"nodes": [node]}})
    operator = read_model_bytes(model).graph.nodes[0]
    assert isinstance(operator, OpNode)
    assert operator.op == op
    return operator.attrs


def sample(field: Field) -> Any:
    """A value that differs from the field's default."""
    match field.kind:
        case "number":
            return 0.5 if field.type == "<f" else 7
        case "bool":
            return not field.default
        case "enum":
            return SCHEMA.enums[field.type].names[-1]
        case "string":
            return "ij,jk->ik"
        case "numbers":
            return (0, 300, 2)
        case "table":
            return BRANCH
        case "union":
            return -3
        case _:
            raise AssertionError(field)


def raw(field: Field, value: Any) -> Any:
    if isinstance(value, Graph):
        return raw_graph(value)
    return ("IntScalar", {"value": value}) if field.kind == "union" else value


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_reads_its_attributes(op: str) -> None:
    table = attrs_table(SCHEMA, op)
    if table is None:
        assert read_attrs(op, None) == {}
        return
    values = {field.name: sample(field) for field in table.fields}
    attrs = read_attrs(op, (table.name, {f.name: raw(f, values[f.name]) for f in table.fields}))
    assert list(attrs) == list(values)
    for name, value in values.items():
        if isinstance(value, Graph):
            assert plain(attrs[name]) == plain(value)
        else:
            assert attrs[name] == value
            assert type(attrs[name]) is type(value)


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_fills_in_defaults(op: str) -> None:
    table = attrs_table(SCHEMA, op)
    if table is None:
        return
    needed = {f.name: raw(f, sample(f)) for f in table.fields if f.required or f.kind == "table"}
    attrs = read_attrs(op, (table.name, needed))
    for field in table.fields:
        if field.name not in needed:
            assert attrs[field.name] == field.default


def test_attribute_tables_all_belong_to_an_operator() -> None:
    used = {table.name for op in OPERATORS if (table := attrs_table(SCHEMA, op))}
    assert used == set(SCHEMA.unions["OperatorAttrs"])


def test_defaults_that_are_not_zero() -> None:
    attrs = read_attrs("ConvTranspose", ("ConvTransposeAttrs", {}))
    assert attrs["auto_pad"] == "NotSet"
    assert attrs["groups"] == 1
    assert read_attrs("Conv", ("ConvAttrs", {}))["auto_pad"] == "Same"
    assert read_attrs("STFT", ("STFTAttrs", {})) == {"onesided": True}
    assert read_attrs("SplitToSequence", ("SplitToSequenceAttrs", {}))["keep_dims"] is True
    assert read_attrs("Gelu", ("GeluAttrs", {})) == {"approximate": "None"}


@pytest.mark.parametrize(
    ("op", "attrs"), [("Pad", {"mode": "Constant"}), ("Shape", {"start": None, "end": None})]
)
def test_operators_of_old_files_lack_a_table(op: str, attrs: dict[str, object]) -> None:
    assert read_attrs(op, None) == attrs


@pytest.mark.parametrize(
    ("scalar", "value"),
    [(("IntScalar", {"value": -(2**31)}), -(2**31)), (("FloatScalar", {"value": 1.5}), 1.5)],
)
def test_scalar_union(scalar: Any, value: float) -> None:
    attrs = read_attrs("ConstantOfShape", ("ConstantOfShapeAttrs", {"value": scalar}))
    assert attrs == {"value": value}
    assert type(attrs["value"]) is type(value)


def test_not_a_number_is_kept() -> None:
    assert math.isnan(read_attrs("Elu", ("EluAttrs", {"alpha": math.nan}))["alpha"])


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        (200, None, 'in node "n": operator number 200 is not known'),
        ("Conv", None, 'in node "n" (Conv): the attributes (ConvAttrs) are missing'),
        (
            "Conv",
            ("GemmAttrs", {}),
            'in node "n" (Conv): has attributes of type GemmAttrs; expected: ConvAttrs',
        ),
        (
            "Add",
            ("ConvAttrs", {}),
            'in node "n" (Add): has attributes of type ConvAttrs; expected: none',
        ),
        (
            "Conv",
            ("ConvAttrs", {"auto_pad": 7}),
            'in node "n" (Conv), attribute "auto_pad": value "7" is not known; known: Same, NotSet',
        ),
        (
            "MaxPool",
            ("MaxPoolAttrs", {}),
            'in node "n" (MaxPool), attribute "kernel_size": required, but absent',
        ),
        (
            "ConstantOfShape",
            ("ConstantOfShapeAttrs", {}),
            'in node "n" (ConstantOfShape), attribute "value": required, but absent',
        ),
        (
            "ConstantOfShape",
            ("ConstantOfShapeAttrs", {"value": (9, "IntScalar", {})}),
            'in node "n" (ConstantOfShape), attribute "value": Scalar type 9 is not known',
        ),
        (
            "If",
            ("IfAttrs", {"then_branch": {}}),
            'in node "n" (If), attribute "else_branch": the branch is missing',
        ),
        (
            "Conv",
            (99, "ConvAttrs", {}),
            'in node "n" (Conv): OperatorNode.attrs: OperatorAttrs type 99 is not known',
        ),
    ],
)
def test_bad_attributes(op: str | int, attrs: Any, message: str) -> None:
    with pytest.raises(ModelFormatError) as error:
        read_attrs(op, attrs)
    assert str(error.value).splitlines()[0] == message
    assert error.value.node == "n"
    if "not known" in message:
        assert error.value.hint is not None
        assert "newer RTen" in error.value.hint


def node(name: str, op: str | int, attrs: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "data": ("OperatorNode", {"type": op, "attrs": attrs, **more})}


def unknown_in(nodes: list[dict[str, Any]], **graph: Any) -> str:
    model = encode({"schema_version": 1, "graph": {"nodes": nodes, **graph}})
    with pytest.raises(ModelFormatError) as error:
        read_model_bytes(model)
    return str(error.value)


def test_all_nodes_that_use_what_is_not_known_are_listed() -> None:
    inner = {"nodes": [node("inner", 150), node("deep", "Cast", ("CastAttrs", {"to": 40}))]}
    middle = {"nodes": [node("choice", "If", ("IfAttrs", {"then_branch": inner,
                                                           "else_branch": {}}))]}  # fmt: skip
    branches = ("IfAttrs", {"then_branch": {}, "else_branch": middle})
    value = {"name": "x", "data": ("ValueNode", {})}
    nodes = [
        value,
        # Its result is used: that nothing known computes it is no second error.
        node("first", 200, outputs=[0]),
        node("user", "Relu", inputs=[0]),
        node("outer", "If", branches),
        node("", 255),
        node("conv", "Conv", ("ConvAttrs", {"auto_pad": 7})),
        node("fill", "ConstantOfShape", ("ConstantOfShapeAttrs", {"value": (9, "IntScalar", {})})),
    ]
    assert unknown_in(nodes, outputs=[0]).splitlines() == [
        "6 nodes use what is not known here:",
        '  in node "first": operator number 200 is not known',
        '  in node "#4": operator number 255 is not known',
        '  in node "conv" (Conv), attribute "auto_pad": value "7" is not known; '
        "known: Same, NotSet",
        '  in node "fill" (ConstantOfShape), attribute "value": Scalar type 9 is not known',
        '  in node "inner": operator number 150 is not known',
        '  in node "deep" (Cast), attribute "to": value "40" is not known; '
        "known: Int32, Float, Int8, UInt8",
        "hint: the file may come from a newer RTen; convert the model with rten-convert 0.22",
    ]


def test_damage_comes_before_what_is_not_known() -> None:
    assert unknown_in([node("a", 200), node("b", "Add", ("ConvAttrs", {})), node("c", 201)]) == (
        'in node "b" (Add): has attributes of type ConvAttrs; expected: none'
    )
