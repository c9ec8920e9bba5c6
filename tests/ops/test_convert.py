from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.cases import Array, Case, Mode, Suite

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
TYPES = {
    "int32": TensorProto.INT32,
    "float32": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
}
FLOATS = np.array(
    [
        300,
        -1,
        255.7,
        -129,
        3e9,
        -3e9,
        2.0**31,
        -(2.0**31),
        2147483520,
        1.9,
        -1.9,
        np.nan,
        np.inf,
        -np.inf,
    ],
    "float32",
)
VALUES: dict[str, Array] = {
    "float32": FLOATS,
    "int32": np.array([INT_MIN, -129, -1, 0, 44, 300, 16777217, INT_MAX], "int32"),
    "int8": np.array([-128, -1, 0, 127], "int8"),
    "uint8": np.array([0, 1, 128, 255], "uint8"),
}


def cast(x: Array, dtype: str) -> Array:
    if x.dtype.kind != "f" or dtype == "float32":
        return x.astype(dtype)
    info = np.iinfo(dtype)
    return np.trunc(np.clip(np.nan_to_num(x.astype("float64")), info.min, info.max)).astype(dtype)


CASES = [
    *[
        Case(
            f"{source}-{target}",
            "Cast",
            [values],
            lambda x, t=target: cast(x, t),
            {"to": TYPES[target]},
            modes=("static", "dynamic", "folded"),
        )
        for source, values in VALUES.items()
        for target in TYPES
    ],
    Case(
        "cast-bool",
        "Cast",
        [np.array([True, False])],
        lambda x: x.astype("float32"),
        {"to": TensorProto.FLOAT},
    ),
    Case(
        "cast-scalar",
        "Cast",
        [np.array(2.5, "float32")],
        lambda x: x.astype("int32"),
        {"to": TensorProto.INT32},
    ),
    Case(
        "cast-large",
        "Cast",
        [np.arange(70_001, dtype="int32")],
        lambda x: x.astype("float32"),
        {"to": TensorProto.FLOAT},
    ),
    Case(
        "castlike",
        "CastLike",
        [FLOATS, np.zeros(1, "uint8")],
        lambda x, _: cast(x, "uint8"),
        rten={},
    ),
    Case("identity", "Identity", [FLOATS], lambda x: x, modes=("static", "dynamic", "folded")),
    Case("identity-int", "Identity", [VALUES["int32"]], lambda x: x),
]
SUITE = Suite(CASES)


@pytest.mark.parametrize(("case", "mode"), SUITE.parameters())
def test_convert(case: Case, mode: Mode) -> None:
    SUITE.check(case, mode)
