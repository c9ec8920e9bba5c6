"""Real .rten files: small ONNX models, converted by rten-convert once per session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rten_convert import converter


def _tensor(name: str, array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def _weights(name: str, *shape: int) -> onnx.TensorProto:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 7
    return _tensor(name, values)


def _floats(name: str, shape: list[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _cnn() -> onnx.GraphProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["m"], name="pool", kernel_shape=[2, 2]),
        helper.make_node("Flatten", ["m"], ["f"], name="flatten"),
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
    ]
    inputs = [_floats("x", ["batch", 3, None, "?"]), _floats("w", [4, 3, 3, 3])]
    outputs = [_floats("f", None), helper.make_tensor_value_info("shape", TensorProto.INT64, [4])]
    # As models of old ONNX versions do, this one lists its weight as an input.
    return helper.make_graph(nodes, "cnn", inputs, outputs, [_weights("w", 4, 3, 3, 3)])


def _branches() -> onnx.GraphProto:
    inner = helper.make_graph(
        [helper.make_node("Clip", ["y", "", "top"], ["i"], name="clip")],
        "inner",
        [],
        [_floats("i", None)],
        [_tensor("top", np.float32(1))],
    )
    other = helper.make_graph(
        [helper.make_node("Mul", ["k", "k"], ["j"], name="mul")], "other", [], [_floats("j", None)]
    )
    outer = helper.make_graph(
        [helper.make_node("If", ["p"], ["t"], name="if2", then_branch=inner, else_branch=other)],
        "outer",
        [],
        [_floats("t", None)],
    )
    plain = helper.make_graph(
        [helper.make_node("Sub", ["y", "k"], ["e"], name="sub")], "plain", [], [_floats("e", None)]
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["y"], name="neg"),
        helper.make_node("If", ["p"], ["z"], name="if", then_branch=outer, else_branch=plain),
    ]
    inputs = [_floats("x", [2, 5]), helper.make_tensor_value_info("p", TensorProto.BOOL, [])]
    return helper.make_graph(nodes, "branches", inputs, [_floats("z", None)], [_weights("k", 2, 5)])


def _quantized() -> onnx.GraphProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "zx"], ["q"], name="quantize"),
        helper.make_node("MatMulInteger", ["q", "w", "zx", "zw"], ["a"], name="matmul"),
        helper.make_node("Cast", ["a"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("LSTM", ["f", "lw", "lr"], ["", "h"], name="lstm", hidden_size=2),
    ]
    constants = [
        _tensor("s", np.float32(0.1)),
        _tensor("zx", np.uint8(3)),
        _tensor("w", np.arange(-24, 24, dtype=np.int8).reshape(1, 8, 6)),
        _tensor("zw", np.int8(0)),
        _weights("lw", 1, 8, 6),
        _weights("lr", 1, 8, 2),
    ]
    outputs = [_floats("h", None)]
    return helper.make_graph(nodes, "quantized", [_floats("x", [3, 1, 8])], outputs, constants)


_MODELS: Mapping[str, Callable[[], onnx.GraphProto]] = {
    "cnn": _cnn,
    "branches": _branches,
    "quantized": _quantized,
}


@pytest.fixture(scope="session")
def real_models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Files by ``name-v1`` and ``name-v2``."""
    folder = tmp_path_factory.mktemp("rten")
    files = {}
    for name, build in _MODELS.items():
        source = folder / f"{name}.onnx"
        onnx.save(helper.make_model(build(), opset_imports=[helper.make_opsetid("", 17)]), source)
        for version, options in (("v1", ["--v1"]), ("v2", [])):
            target = folder / f"{name}-{version}.rten"
            arguments = ["rten-convert", *options, str(source), str(target)]
            with mock.patch.object(sys, "argv", arguments):
                converter.main()
            files[target.stem] = target
    return files
