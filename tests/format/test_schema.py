"""schema.fbs, the layouts parsed from it, and both sets of generated bindings agree."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from rten_convert import schema_generated as converter_bindings

from rten_aot.format import schema_generated as own_bindings
from rten_aot.format.schema import Field, load_schema, parse_schema

SCHEMA = load_schema()
BINDINGS = pytest.mark.parametrize(
    "bindings", [own_bindings, converter_bindings], ids=["own", "rten-convert"]
)

_METHODS = {
    "<b": "PrependInt8Slot",
    "<B": "PrependUint8Slot",
    "<H": "PrependUint16Slot",
    "<i": "PrependInt32Slot",
    "<I": "PrependUint32Slot",
    "<Q": "PrependUint64Slot",
    "<f": "PrependFloat32Slot",
}


class Recorder:
    """Stands in for a builder: keeps what a generated function would write."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, method: str) -> Any:
        return lambda *args: self.calls.append((method, args))


@BINDINGS
def test_enums_and_unions_have_the_same_values(bindings: ModuleType) -> None:
    enums = {name: enum.names for name, enum in SCHEMA.enums.items()}
    enums |= {name: ("NONE", *members) for name, members in SCHEMA.unions.items()}
    for name, names in enums.items():
        cls = vars(bindings)[name]
        values = {key.rstrip("_"): v for key, v in vars(cls).items() if isinstance(v, int)}
        assert values == {member: value for value, member in enumerate(names)}


@BINDINGS
@pytest.mark.parametrize("table", SCHEMA.tables)
def test_tables_have_the_same_fields(bindings: ModuleType, table: str) -> None:
    layout = SCHEMA.tables[table]
    recorder = Recorder()
    vars(bindings)[f"{table}Start"](recorder)
    assert recorder.calls == [("StartObject", (layout.slots,))]
    setters = set()
    for field in layout.fields:
        camel = "".join(word[0].upper() + word[1:] for word in field.name.split("_"))
        setters.add(f"{table}Add{camel}")
        recorder = Recorder()
        vars(bindings)[f"{table}Add{camel}"](recorder, 5)
        assert recorder.calls == [_expected(field)]
        if field.kind == "union":
            setters.add(f"{table}Add{camel}Type")
            recorder = Recorder()
            vars(bindings)[f"{table}Add{camel}Type"](recorder, 5)
            assert recorder.calls == [("PrependUint8Slot", (field.slot - 1, 5, 0))]
    assert {name for name in vars(bindings) if name.startswith(f"{table}Add")} == setters


def _expected(field: Field) -> tuple[str, tuple[Any, ...]]:
    default: Any = field.default
    match field.kind:
        case "number":
            method = _METHODS[field.type]
        case "bool":
            method = "PrependBoolSlot"
        case "enum":
            enum = SCHEMA.enums[field.type]
            method = _METHODS[enum.scalar.format]
            default = None if default is None else enum.names.index(default)
        case _:
            method, default = "PrependUOffsetTRelativeSlot", 0
    return method, (field.slot, 5, default)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("struct A { x:int; }", r"cannot read 'struct A"),
        ("enum A: ubyte { X = 3 }", r"cannot read member 'X = 3'"),
        ("table A { x:int (deprecated); }", r"cannot read field 'x:int \(deprecated\)' of A"),
        ("table A { x:[bool]; }", r"cannot read field 'x:\[bool\]' of A"),
        ("table A { x:double; }", r"unknown type 'double' in A"),
    ],
)
def test_unknown_schema_language_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_schema(text)
