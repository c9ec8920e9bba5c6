"""Small models to compile, written as .rten files, and what NumPy makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rten_aot
from rten_aot.codegen.link import _find_zig
from rten_aot.format.graph import Constant, Dim, DType, Graph, Node, OpNode, Value
from tests.support.rten_writer import write_model

Array = npt.NDArray[Any]

ROWS, WIDTH = 10, 6


class Net:
    """Collects the nodes of a graph; every method returns the index of the value it makes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[int] = []

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def input(self, name: str, shape: Sequence[Dim], dtype: DType = "float32") -> int:
        self.inputs.append(self.add(Value(name, tuple(shape), dtype)))
        return self.inputs[-1]

    def op(self, op: str, *inputs: int | Array, name: str, **attrs: object) -> int:
        operands = [
            i if isinstance(i, int) else self.add(Constant(f"{name}_{k}", i))
            for k, i in enumerate(inputs)
        ]
        result = self.add(Value(name, None, None))
        self.add(OpNode(f"node_{name}", op, tuple(operands), (result,), attrs))
        return result

    def write(self, path: Path, *outputs: int) -> Path:
        return write_model(Graph(self.nodes, tuple(self.inputs), outputs), path)


def _weights(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def write_net(path: Path) -> Path:
    """A convolution, pooling, a product of matrices, and rows chosen by index.

    Inputs: image (batch, 3, 8, 8), rows (count), int32. Outputs: scores (batch, 6) and chosen
    (count, 6).
    """
    net = Net()
    image = net.input("image", ("batch", 3, 8, 8))
    rows = net.input("rows", ("count",), "int32")
    y = net.op(
        "Conv", image, _weights(16, 3, 3, 3), _weights(16), name="conv",
        auto_pad="NotSet", pads=[1, 1, 1, 1], groups=1, strides=[1, 1], dilations=[1, 1],
    )  # fmt: skip
    y = net.op("Relu", y, name="relu")
    y = net.op("GlobalAveragePool", y, name="pool")
    y = net.op("Flatten", y, name="flat", axis=1)
    y = net.op("MatMul", y, _weights(16, WIDTH), name="product")
    y = net.op("Sigmoid", y, name="scores")
    chosen = net.op("Gather", table(), rows, name="chosen", axis=0)
    return net.write(path, y, chosen)


def table() -> Array:
    """What ``rows`` selects from."""
    return _weights(ROWS, WIDTH)


def feed(batch: int = 2, rows: Sequence[int] = (3, -1), seed: int = 0) -> dict[str, Array]:
    """Inputs of the net."""
    image = np.random.default_rng(seed).standard_normal((batch, 3, 8, 8), np.float32)
    return {"image": image, "rows": np.array(rows, np.int32)}


def expected(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the net answers, in float64."""
    image = np.pad(inputs["image"].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    y = np.einsum("nchwyx,ocyx->nohw", windows, _weights(16, 3, 3, 3).astype(np.float64))
    y = np.maximum(y + _weights(16)[:, None, None], 0).mean(axis=(2, 3))
    return {
        "scores": 1 / (1 + np.exp(-(y @ _weights(16, WIDTH)))),
        "chosen": table()[inputs["rows"]],
    }


def assert_right(got: Mapping[str, Array], inputs: Mapping[str, Array]) -> None:
    """Fail unless the outputs are the expected ones."""
    want = expected(inputs)
    assert list(got) == list(want)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def run_python(
    code: str, *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> str:
    """What a program in another process of this Python prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    root = Path(rten_aot.__file__).resolve().parents[1]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build_program(
    folder: Path, source: Path, *arguments: str | Path, target: str | None = None
) -> Path:
    """A C program, by zig; ``arguments`` are objects, libraries and options."""
    program = folder / "program"
    command = [*_find_zig(), "cc", *(["-target", target] if target else []), "-std=c99", "-O1"]
    command += ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{rten_aot.get_include()}"]
    done = subprocess.run(
        [*command, str(source), *map(str, arguments), "-lm", "-lpthread", "-o", str(program)],
        cwd=folder,
        env={**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program
