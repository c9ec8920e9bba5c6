"""Attributes of the .rten format as those of ONNX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rten_aot.errors import InternalError
from rten_aot.format import DType, Graph, OpNode
from rten_aot.interop.elements import proto_type

DTYPES: Mapping[str, DType] = {
    "Int32": "int32",
    "Float": "float32",
    "Int8": "int8",
    "UInt8": "uint8",
}
"""Element types by their names in the file format."""

_NAMES: Mapping[str, str] = {
    "allow_zero": "allowzero",
    "block_size": "blocksize",
    "box_order": "center_point_box",
    "coord_mode": "coordinate_transformation_mode",
    "groups": "group",
    "keep_dims": "keepdims",
    "kernel_size": "kernel_shape",
    "transpose_a": "transA",
    "transpose_b": "transB",
}

# What ONNX takes for granted. rten-convert writes it for two spatial axes where there is one, so
# that it must not be written to ONNX.
_NEUTRAL: Mapping[str, int] = {"pads": 0, "strides": 1, "dilations": 1, "output_padding": 0}

_VALUES: Mapping[str, Callable[[str], object]] = {
    "auto_pad": lambda value: {"Same": "SAME_UPPER", "NotSet": "NOTSET"}[value],
    "box_order": lambda value: ["TopLeftBottomRight", "CenterWidthHeight"].index(value),
    "dtype": lambda value: proto_type(DTYPES[value]),
    "output_dtype": lambda value: proto_type(DTYPES[value]),
    "to": lambda value: proto_type(DTYPES[value]),
    "equation": str,
}


def onnx_attributes(node: OpNode) -> dict[str, Any]:
    """The attributes of an operator but for inner graphs; those that say nothing are left out."""
    attrs: dict[str, Any] = {}
    for name, value in node.attrs.items():
        neutral = _NEUTRAL.get(name)
        if value is None or isinstance(value, Graph) or name in ("axes", "value"):
            continue
        if neutral is not None and isinstance(value, (list, tuple)):
            if any(v != neutral for v in value):
                attrs[name] = list(value)
            continue
        attrs[_NAMES.get(name, name)] = _value(node.op, name, value)
    if attrs.get("auto_pad") == "SAME_UPPER":
        attrs.pop("pads", None)
    return attrs


def _value(op: str, name: str, value: object) -> object:
    match value:
        case bool():
            return int(value)
        case int() | float():
            return value
        case str() if name in _VALUES:
            return _VALUES[name](value)
        case str():
            # DepthToSpace alone has values in capitals.
            return value if value.isupper() else _snake(value)
        case list() | tuple():
            return list(value)
    raise InternalError(f"attribute {name} of {op} has the value {value!r}")


def _snake(value: str) -> str:
    """``RoundPreferFloor`` -> ``round_prefer_floor``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", value).lower()
