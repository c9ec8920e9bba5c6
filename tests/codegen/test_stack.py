"""Kernels run on workers' stacks, which are small: what is large lies in the workspace."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.ops.test_control_flow import Array, GraphMaker
from tests.support.rten_writer import write_model

LARGEST_FRAME = 4096


def weights(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def large_kernels(free: bool) -> GraphMaker:
    """Rows, planes and states that no stack has room for."""
    g = GraphMaker()
    x = g.input("x", ("a", "b", "c") if free else (2, 4000, 4000))
    y = g.input("y", ("n", 64, "h", "w") if free else (1, 64, 112, 112))
    z = g.input("z", ("s", "n", 512) if free else (50, 64, 512))
    boxes = g.input("boxes", ("n", "k", 4) if free else (8, 10000, 4))
    scores = g.input("scores", ("n", 20, "k") if free else (8, 20, 10000))
    windows = {"auto_pad": "NotSet", "pads": (3, 3, 3, 3), "strides": (1, 1)}
    conv = {**windows, "dilations": (1, 1)}
    resize = {"mode": "Linear", "coord_mode": "HalfPixel", "nearest_mode": "Floor"}
    large, count = g.constant("k", np.int32([1000])), g.constant("m", np.int32([100]))
    g.op("TopK", x, large, axis=-1, largest=True, sorted=True, outputs=2)
    g.op("Softmax", x, axis=2)
    g.op("Softmax", x, axis=1)
    g.op("LayerNormalization", x, g.constant("scale", np.float32(2)), axis=1, epsilon=1e-5)
    g.op("MatMul", x, g.constant("square", weights(4000, 4000)))
    g.op("Einsum", x, x, equation="bij,bkj->bik")
    g.op("CumSum", x, g.constant("axis", np.int32(1)))
    g.op("Transpose", x, perm=(0, 2, 1))
    g.op("ReduceSum", x, axes=(1,), keep_dims=False)
    g.op("ArgMax", x, axis=1, keep_dims=False)
    g.op("NonZero", x)
    g.op("Conv", y, g.constant("w7", weights(128, 64, 7, 7)), groups=1, **conv)
    g.op("Conv", y, g.constant("w3", weights(64, 64, 3, 3)), groups=1, **conv)
    g.op("Conv", y, g.constant("dw", weights(64, 1, 7, 7)), groups=64, **conv)
    g.op("ConvTranspose", y, g.constant("t", weights(64, 64, 7, 7)), groups=1,
         output_padding=(0, 0), **windows)  # fmt: skip
    g.op("MaxPool", y, kernel_size=(7, 7), ceil_mode=False, **windows)
    g.op("Resize", y, None, g.constant("scales", np.float32([1, 1, 2, 2])), **resize)
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        w = g.constant(f"w_{kind}", weights(2, gates * 512, 512))
        r = g.constant(f"r_{kind}", weights(2, gates * 512, 512))
        g.op(kind, z, w, r, direction="Bidirectional", hidden_size=512, outputs=2)
    g.op("NonMaxSuppression", boxes, scores, count, box_order="TopLeftBottomRight")
    return g


@pytest.mark.parametrize(
    ("free", "target"),
    [
        (False, "x86-64-v3"),
        pytest.param(True, "x86-64-v3", marks=pytest.mark.slow),
        pytest.param(False, "x86-64-v4", marks=pytest.mark.slow),
        pytest.param(True, "x86-64-v4", marks=pytest.mark.slow),
    ],
)
def test_frames_are_small(free: bool, target: str, tmp_path: Path) -> None:
    g = large_kernels(free)
    used = {i for n in g.nodes for i in getattr(n, "inputs", ())}
    results = [n.outputs[0] for n in g.nodes if getattr(n, "outputs", None)]
    graph = g.graph(*[i for i in results if i not in used])
    path = write_model(graph, tmp_path / "m.rten")
    text = rten_aot.compile(path, tmp_path / "m.s", target=target, emit="asm").read_text()
    frames = [int(size) for size in re.findall(r"\bsubq\s+\$(\d+), %rsp", text)]
    assert len(frames) > 10
    assert max(frames) <= LARGEST_FRAME
    # Neither is memory taken from the heap for them.
    assert "AllocWorkspace" not in text
    assert text.count("ParallelLaunch") > 10
