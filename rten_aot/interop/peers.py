"""Other runtimes that run the ONNX original of a model, as fast as they can be told to.

They are optional packages, which are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rten_aot.errors import CompileError
from rten_aot.extras import import_peer

Feed = Mapping[str, npt.NDArray[Any]]

_ONNX_TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}
"""NumPy's names of the types of inputs in ONNX Runtime's words, where they are not the same."""


@dataclass(frozen=True)
class Peer:
    """A runtime that has loaded a model."""

    name: str
    version: str
    run: Callable[[], object]
    """Runs the model once; gives its outputs in arrays."""


def open_peer(name: str, model: Path, feed: Feed, threads: int) -> Peer:
    """A runtime of ``PEERS`` with an ONNX model loaded, and ``feed`` as its inputs by name.

    ``feed`` has the types of the .rten model; it is converted to those of the ONNX model.

    Raises:
        CompileError: the runtime is not installed, cannot run the model, or the inputs are not the
            model's.
        OSError: the model cannot be read.
    """
    with open(model, "rb"):
        pass  # the runtimes' own messages do not say what is wrong with the file
    try:
        peer = PEERS[name](model, feed, threads)
        peer.run()
    except CompileError:
        raise
    except Exception as err:  # each runtime has exceptions of its own
        raise CompileError(f"{model}: {name} cannot run it: {err}") from err
    return peer


def _onnxruntime(model: Path, feed: Feed, threads: int) -> Peer:
    ort = import_peer("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    # Its workers spin on after a run, on the cores that the next one to run would need.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    types = {i.name: _onnx_type(i.type) for i in session.get_inputs()}
    inputs = _converted(feed, types, model)
    return Peer("onnxruntime", ort.__version__, lambda: session.run(None, inputs))


def _onnx_type(text: str) -> np.dtype[Any]:
    return np.dtype(_ONNX_TYPES.get(text, text.removeprefix("tensor(").removesuffix(")")))


def _openvino(model: Path, feed: Feed, threads: int) -> Peer:
    openvino = import_peer("openvino")
    core = openvino.Core()
    network = core.read_model(str(model))
    types = {i.get_any_name(): np.dtype(i.get_element_type().to_dtype()) for i in network.inputs}
    inputs = _converted(feed, types, model)
    network.reshape({name: list(array.shape) for name, array in inputs.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        # Where the processor has bfloat16, less exact numbers are the default.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(network, "CPU", settings)
    version = openvino.__version__.partition("-")[0]
    return Peer("openvino", version, lambda: compiled(inputs))


PEERS: Mapping[str, Callable[[Path, Feed, int], Peer]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
"""What models can be timed against, by the name of its Python package."""


def _converted(
    feed: Feed, types: Mapping[str, np.dtype[Any]], model: Path
) -> dict[str, npt.NDArray[Any]]:
    if feed.keys() != types.keys():
        raise CompileError(
            f"{model}: has the inputs {_names(types)}; the compiled model has {_names(feed)}"
        )
    return {name: array.astype(types[name]) for name, array in feed.items()}


def _names(names: Mapping[str, object]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"
