"""Times random layers against ONNX Runtime: ``python -m tests.support.bench_shapes``.

The real models say how fast the layers are that they happen to have; this asks for all the others:
convolutions (plain, strided, grouped, depthwise), matrix products and products with few rows.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rten_convert.converter import Metadata, graph_from_onnx_graph, serialize_model

import rten_aot
from rten_aot.cli.timing import Comparison, alternating, geometric_mean
from rten_aot.interop.peers import open_peer

CHANNELS = (8, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)
ODD_CHANNELS = (3, 5, 7, 11, 13, 17, 23, 29, 37, 51, 67, 100, 130, 250)
LENGTHS = (64, 100, 128, 250, 256, 384, 512, 768, 1000, 1024, 2048)
PLANES = (7, 10, 14, 20, 28, 40, 56, 80, 112)
MOST_PRODUCTS = 4e8
"""Larger layers take long, and tell no more."""


@dataclass(frozen=True)
class Layer:
    """One layer with constant weights."""

    text: str
    family: str
    model: ModelProto
    feed: dict[str, np.ndarray]


def layers(count: int, seed: int) -> list[Layer]:
    """``count`` layers, the families in turn; the same seed gives the same ones."""
    pick = random.Random(seed)
    families = (_conv, _conv, _conv, _depthwise, _grouped, _gemm, _gemv)
    return [families[i % len(families)](pick) for i in range(count)]


def _channels(pick: random.Random) -> int:
    return pick.choice(CHANNELS if pick.random() < 0.75 else ODD_CHANNELS)


def _conv(pick: random.Random) -> Layer:
    while True:
        kernel = pick.choice((1, 1, 3, 3, 5))
        sizes = _channels(pick), _channels(pick), pick.choice(PLANES), pick.choice(PLANES)
        stride = pick.choice((1, 1, 1, 2))
        products = math.prod(sizes) * kernel**2 / stride**2
        if 1e5 < products < MOST_PRODUCTS:
            return _convolution("conv", *sizes, kernel, stride, 1)


def _depthwise(pick: random.Random) -> Layer:
    channels, kernel = _channels(pick), pick.choice((3, 3, 5))
    size = pick.choice(PLANES), pick.choice(PLANES)
    return _convolution(
        "depthwise", channels, channels, *size, kernel, pick.choice((1, 2)), channels
    )


def _grouped(pick: random.Random) -> Layer:
    while True:
        groups = pick.choice((2, 3, 4, 8))
        channels, out = (groups * pick.choice((4, 8, 12, 16, 24, 32, 64)) for _ in range(2))
        size = pick.choice(PLANES), pick.choice(PLANES)
        kernel, stride = pick.choice((1, 3)), pick.choice((1, 2))
        products = channels * out / groups * math.prod(size) * kernel**2
        if 1e5 < products < MOST_PRODUCTS:
            return _convolution("grouped", channels, out, *size, kernel, stride, groups)


def _convolution(
    family: str,
    channels: int,
    out: int,
    height: int,
    width: int,
    kernel: int,
    stride: int,
    groups: int,
) -> Layer:
    rng = np.random.default_rng(channels * out)
    weight = rng.standard_normal((out, channels // groups, kernel, kernel), dtype="float32") * 0.1
    bias = rng.standard_normal(out, dtype="float32")
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups
    )
    x = rng.standard_normal((1, channels, height, width), dtype="float32")
    text = f"{family} {channels}->{out} {kernel}x{kernel}/{stride} {height}x{width}"
    text += f" in {groups} groups" if family == "grouped" else ""
    nodes = [node, helper.make_node("Relu", ["c"], ["y"])]
    return _layer(text, family, nodes, {"w": weight, "b": bias}, x)


def _gemm(pick: random.Random) -> Layer:
    while True:
        m, k, n = (pick.choice((*CHANNELS, 768, 1024, 3072, *ODD_CHANNELS)) for _ in range(3))
        if m > 8 and 1e5 < m * k * n < MOST_PRODUCTS:
            return _product("gemm", m, k, n)


def _gemv(pick: random.Random) -> Layer:
    m = pick.choice((1, 1, 2, 3, 4, 6, 8))
    k, n = (
        pick.choice((64, 100, 128, 250, 256, 384, 512, 768, 1000, 1024, 2048)) for _ in range(2)
    )
    return _product("few rows", m, k, n)


def _product(family: str, m: int, k: int, n: int) -> Layer:
    rng = np.random.default_rng(m * k * n)
    x = rng.standard_normal((m, k), dtype="float32")
    stored = {
        "w": rng.standard_normal((k, n), dtype="float32"),
        "b": rng.standard_normal(n, dtype="float32"),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["c"]),
        helper.make_node("Add", ["c", "b"], ["y"]),
    ]
    return _layer(f"{family} {m}x{k}x{n}", family, nodes, stored, x)


def _layer(
    text: str, family: str, nodes: Sequence, stored: dict[str, np.ndarray], x: np.ndarray
) -> Layer:
    graph = helper.make_graph(
        list(nodes),
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(v, n) for n, v in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return Layer(text, family, model, {"x": x})


def main() -> None:
    """Print a row for each layer, slowest ratio last, and the geometric mean by family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.3, help="for each layer")
    parser.add_argument("--target", default="llvm -mcpu=native")
    args = parser.parse_args()
    chosen = layers(args.count, args.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, layer in enumerate(chosen):
            _compile(layer, folder / str(i), args.target)
        for threads in args.threads:
            _table(
                [
                    (layer, _compare(layer, folder / str(i), threads, args.seconds))
                    for i, layer in enumerate(chosen)
                ],
                threads,
            )


def _compile(layer: Layer, path: Path, target: str) -> None:
    """Write the layer beside ``path`` as ONNX, .rten and a library."""
    path.with_suffix(".onnx").write_bytes(layer.model.SerializeToString())
    graph = graph_from_onnx_graph(layer.model.graph)
    converted = serialize_model(graph, Metadata(onnx_hash="0" * 64), None)
    path.with_suffix(".rten").write_bytes(bytes(converted))
    rten_aot.compile(path.with_suffix(".rten"), target=target)


def _compare(layer: Layer, path: Path, threads: int, seconds: float) -> Comparison:
    peer = open_peer("onnxruntime", path.with_suffix(".onnx"), layer.feed, threads)
    with rten_aot.load(path.with_suffix(".so"), num_threads=threads) as model:
        run = functools.partial(model.run, layer.feed)
        return alternating(run, [peer.run], seconds)[1][0]


def _table(rows: Sequence[tuple[Layer, Comparison]], threads: int) -> None:
    print(f"\n{threads} threads: layer, ORT us, ours us, ratio")
    for layer, times in sorted(rows, key=lambda row: -row[1].ratio):
        medians = f"{times.other.median * 1e6:9.1f} {times.own.median * 1e6:9.1f}"
        print(f"{layer.text:44} {medians} {times.ratio:6.2f}")
    ratios: dict[str, list[float]] = {}
    for layer, times in rows:
        for family in (layer.family, "all"):
            ratios.setdefault(family, []).append(times.ratio)
    for family, values in ratios.items():
        mean = geometric_mean(values)
        print(f"{family:12} geometric mean {mean:.2f}, worst {min(values):.2f}, of {len(values)}")


if __name__ == "__main__":
    main()
