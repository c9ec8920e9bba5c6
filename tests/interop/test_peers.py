"""The runtimes that models are timed against: their settings, their inputs, their errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from rten_aot.errors import CompileError
from rten_aot.interop.peers import PEERS, open_peer


def model(path: Path, **types: int) -> Path:
    """An ONNX model that gives back each of its inputs [n, 2], in the same types."""
    values = [helper.make_tensor_value_info(name, kind, ["n", 2]) for name, kind in types.items()]
    results = [
        helper.make_tensor_value_info(f"{name}_out", kind, ["n", 2]) for name, kind in types.items()
    ]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in types]
    graph = helper.make_graph(nodes, "g", values, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return path


FEED = {
    "x": np.array([[1.5, -2]], np.float32),
    "i": np.array([[3, -4]], np.int32),
    "b": np.array([[0, 1]], np.int32),
}


@pytest.mark.parametrize("name", PEERS)
def test_inputs_get_the_types_of_the_model(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    types = {"x": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}
    peer = open_peer(name, model(tmp_path / "m.onnx", **types), FEED, 1)
    assert peer.name == name
    assert peer.version[0].isdigit()
    got: Any = peer.run()
    for index, (key, array) in enumerate(FEED.items()):
        np.testing.assert_array_equal(got[index], array.astype(got[index].dtype), err_msg=key)
    assert [got[i].dtype for i in (1, 2)] == [np.int64, np.bool_]


def test_settings_of_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    session = onnxruntime.InferenceSession

    def remember(path: str, options: Any, **others: Any) -> Any:
        seen.append((options, others))
        return session(path, options, **others)

    monkeypatch.setattr(onnxruntime, "InferenceSession", remember)
    path = model(tmp_path / "m.onnx", x=TensorProto.FLOAT)
    open_peer("onnxruntime", path, {"x": FEED["x"]}, 3)
    ((options, others),) = seen
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    every = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert options.graph_optimization_level == every
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"
    assert others == {"providers": ["CPUExecutionProvider"]}


def test_settings_of_openvino(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openvino = pytest.importorskip("openvino")
    seen: list[Any] = []

    class Core:
        def __init__(self) -> None:
            self.core = core()

        def read_model(self, path: str) -> Any:
            return self.core.read_model(path)

        def compile_model(self, network: Any, device: str, settings: dict[str, Any]) -> Any:
            seen.append((network.inputs[0].partial_shape.is_static, device, settings))
            return self.core.compile_model(network, device, settings)

    core = openvino.Core
    monkeypatch.setattr(openvino, "Core", Core)
    path = model(tmp_path / "m.onnx", x=TensorProto.FLOAT)
    open_peer("openvino", path, {"x": FEED["x"]}, 3)
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 3, "NUM_STREAMS": 1}
    assert seen == [(True, "CPU", settings)]


@pytest.mark.parametrize("name", PEERS)
def test_what_is_not_installed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path / "m.onnx", x=TensorProto.FLOAT)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CompileError) as error:
        open_peer(name, path, {"x": FEED["x"]}, 1)
    assert str(error.value) == (
        f'{name} is not installed (no module "{name}")\nhint: pip install "rten-aot[bench]"'
    )


@pytest.mark.parametrize("name", PEERS)
def test_what_cannot_be_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    with pytest.raises(FileNotFoundError):
        open_peer(name, tmp_path / "none.onnx", {}, 1)
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(CompileError, match=rf"broken\.onnx: {name} cannot run it: "):
        open_peer(name, path, {}, 1)
    path = model(tmp_path / "m.onnx", x=TensorProto.FLOAT)
    with pytest.raises(CompileError) as error:
        open_peer(name, path, {"i": FEED["i"]}, 1)
    assert str(error.value) == f'{path}: has the inputs "x"; the compiled model has "i"'


def test_what_fails_in_its_first_run(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", x=TensorProto.FLOAT)
    with pytest.raises(CompileError, match=r"m\.onnx: onnxruntime cannot run it: .*Invalid rank"):
        open_peer("onnxruntime", path, {"x": np.zeros((1, 2, 3), np.float32)}, 1)


def test_nothing_is_imported_before_it_is_asked_for(root: Path) -> None:
    code = (
        "import sys, rten_aot.cli.bench\n"
        "assert not {'onnxruntime', 'openvino', 'onnx', 'tvm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
