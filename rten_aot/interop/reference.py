"""ONNX Runtime as a second engine for models of the .rten format."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from rten_aot.errors import CompileError
from rten_aot.format import Model
from rten_aot.interop.compare import Array
from rten_aot.interop.export import export_onnx


def run_reference(model: Model, inputs: Sequence[Array], threads: int = 0) -> list[Array]:
    """The outputs that ONNX Runtime gives, in the model's order.

    Raises:
        CompileError: the model cannot be written as ONNX, or ONNX Runtime cannot run it.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    # What it does beyond that is as open to doubt as what is to be verified.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Without this, products of uint8 and int8 saturate on CPUs without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    with tempfile.TemporaryDirectory(prefix="rten-aot-verify-") as folder:
        path = Path(folder, "model.onnx")
        export_onnx(model, path)
        try:
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
            names = [info.name for info in session.get_inputs()]
            feeds = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True)}
            outputs: list[Array] = session.run(None, feeds)
        except Exception as err:  # it raises many kinds, all of them its own
            lines = str(err).strip().splitlines() or [type(err).__name__]
            raise CompileError(f"ONNX Runtime cannot run the model: {lines[0]}") from err
    return [np.asarray(array) for array in outputs]
