"""Train a small convolutional network on scikit-learn's handwritten digits and write digits.rten.

Plain NumPy, a few seconds on one core:

    python examples/digits/train.py

The result is committed beside this file, so only those who want to change the network need run it.
Needs scikit-learn, onnx and rten-convert.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

SEED, EPOCHS, BATCH, RATE, TEST_SIZE = 7, 40, 64, 3e-3, 360
EPSILON = 1e-5


class Layer:
    """A function of one array, with parameters.

    `backward` follows `forward`: it takes the gradient of the loss by the output, stores those by
    the parameters and gives that by the input.
    """

    def __init__(self, **parameters: Floats) -> None:
        self.parameters = parameters
        self.gradients: dict[str, Floats] = {}

    def forward(self, x: Floats, *, training: bool) -> Floats:
        """Compute the layer's output, keeping what `backward` needs."""
        raise NotImplementedError

    def backward(self, grad: Floats) -> Floats:
        """Turn the gradient of the output into that of the input."""
        raise NotImplementedError


class Conv(Layer):
    """A 3x3 convolution with padding 1 on (batch, channels, height, width)."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        spread = np.sqrt(2 / (9 * inputs))
        weight = spread * rng.standard_normal((outputs, inputs, 3, 3))
        super().__init__(weight=weight.astype(np.float32), bias=np.zeros(outputs, np.float32))

    def forward(self, x: Floats, *, training: bool) -> Floats:
        self._windows = _windows(x)
        product = np.einsum(
            "nchwij,ocij->nohw", self._windows, self.parameters["weight"], optimize=True
        )
        return np.asarray(product + self.parameters["bias"][:, None, None])

    def backward(self, grad: Floats) -> Floats:
        weight = self.parameters["weight"]
        self.gradients["weight"] = np.einsum(
            "nchwij,nohw->ocij", self._windows, grad, optimize=True
        )
        self.gradients["bias"] = grad.sum(axis=(0, 2, 3))
        turned = weight[:, :, ::-1, ::-1]
        return np.asarray(np.einsum("nohwij,ocij->nchw", _windows(grad), turned, optimize=True))


class BatchNorm(Layer):
    """Normalises each channel by the batch when training, by running statistics afterwards."""

    def __init__(self, channels: int) -> None:
        super().__init__(scale=np.ones(channels, np.float32), shift=np.zeros(channels, np.float32))
        self.mean = np.zeros(channels, np.float32)
        self.variance = np.ones(channels, np.float32)

    def forward(self, x: Floats, *, training: bool) -> Floats:
        if training:
            mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            self.mean += np.float32(0.05) * (mean - self.mean)
            self.variance += np.float32(0.05) * (variance - self.variance)
        else:
            mean, variance = self.mean, self.variance
        self._deviation = np.sqrt(variance + np.float32(EPSILON))[:, None, None]
        self._normal = (x - mean[:, None, None]) / self._deviation
        scale, shift = self.parameters["scale"], self.parameters["shift"]
        return np.asarray(scale[:, None, None] * self._normal + shift[:, None, None])

    def backward(self, grad: Floats) -> Floats:
        normal, axes = self._normal, (0, 2, 3)
        self.gradients = {"scale": (grad * normal).sum(axes), "shift": grad.sum(axes)}
        grad = grad * self.parameters["scale"][:, None, None]
        through_mean = grad.mean(axes, keepdims=True)
        through_variance = normal * (grad * normal).mean(axes, keepdims=True)
        return np.asarray((grad - through_mean - through_variance) / self._deviation)


class Relu(Layer):
    """Sets negative values to zero."""

    def forward(self, x: Floats, *, training: bool) -> Floats:
        self._positive = x > 0
        return np.asarray(x * self._positive)

    def backward(self, grad: Floats) -> Floats:
        return np.asarray(grad * self._positive)


class MaxPool(Layer):
    """The greatest of each 2x2 square."""

    def forward(self, x: Floats, *, training: bool) -> Floats:
        batch, channels, height, width = x.shape
        squares = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
        greatest = squares.max(axis=(3, 5), keepdims=True)
        self._shape, self._chosen = x.shape, squares == greatest
        return np.asarray(greatest[:, :, :, 0, :, 0])

    def backward(self, grad: Floats) -> Floats:
        spread = grad[:, :, :, None, :, None] * self._chosen
        return np.asarray(spread.reshape(self._shape))


class Dense(Layer):
    """Flattens, multiplies by a matrix and adds a bias."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        weight = np.sqrt(1 / inputs) * rng.standard_normal((inputs, outputs))
        super().__init__(weight=weight.astype(np.float32), bias=np.zeros(outputs, np.float32))

    def forward(self, x: Floats, *, training: bool) -> Floats:
        self._shape, self._flat = x.shape, x.reshape(len(x), -1)
        return np.asarray(self._flat @ self.parameters["weight"] + self.parameters["bias"])

    def backward(self, grad: Floats) -> Floats:
        self.gradients = {"weight": self._flat.T @ grad, "bias": grad.sum(axis=0)}
        return np.asarray((grad @ self.parameters["weight"].T).reshape(self._shape))


class Adam:
    """The Adam optimiser over every parameter of some layers."""

    def __init__(self, layers: list[Layer]) -> None:
        self._layers = layers
        self._step = 0
        self._moments = [
            {
                name: (np.zeros_like(value), np.zeros_like(value))
                for name, value in layer.parameters.items()
            }
            for layer in layers
        ]

    def update(self, rate: float) -> None:
        """Move the parameters against the gradients that the last backward pass left."""
        self._step += 1
        for layer, moments in zip(self._layers, self._moments, strict=True):
            for name, (first, second) in moments.items():
                gradient = layer.gradients[name]
                first += np.float32(0.1) * (gradient - first)
                second += np.float32(0.001) * (gradient**2 - second)
                direction = first / (1 - 0.9**self._step)
                size = np.sqrt(second / (1 - 0.999**self._step)) + 1e-8
                layer.parameters[name] -= (rate * direction / size).astype(np.float32)


def make_network(rng: np.random.Generator) -> list[Layer]:
    """Make the untrained network, which ends in scores rather than probabilities."""
    return [
        Conv(rng, 1, 16),
        BatchNorm(16),
        Relu(),
        Conv(rng, 16, 32),
        Relu(),
        MaxPool(),
        Dense(rng, 512, 10),
    ]


def forward(network: list[Layer], x: Floats, *, training: bool = False) -> Floats:
    """Give the probability of each digit for pictures of shape (batch, 1, 8, 8)."""
    for layer in network:
        x = layer.forward(x, training=training)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def train(network: list[Layer], pictures: Floats, labels: Labels, rng: np.random.Generator) -> None:
    """Fit the network by Adam on the cross-entropy, with pictures moved by up to a pixel."""
    optimiser = Adam(network)
    for epoch in range(EPOCHS):
        order = rng.permutation(len(pictures))
        rate = RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        loss = 0.0
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            chances = forward(network, _moved(pictures[chosen], rng), training=True)
            truth = np.eye(10, dtype=np.float32)[labels[chosen]]
            loss -= float(np.log((chances * truth).sum(axis=1) + 1e-12).sum())
            grad = (chances - truth) / np.float32(len(chosen))
            for layer in reversed(network):
                grad = layer.backward(grad)
            optimiser.update(rate)
        print(f"epoch {epoch + 1:2}: loss {loss / len(order):.4f}")


def to_onnx(network: list[Layer]) -> onnx.ModelProto:
    """Export from "input" of shape (batch, 1, 8, 8) to "probabilities" of shape (batch, 10)."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(op: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{op.lower()}{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def weight(value: Floats) -> str:
        weights.append(numpy_helper.from_array(value, f"weight{len(weights)}"))
        return weights[-1].name

    value = "input"
    for layer in network:
        inputs = [value, *(weight(parameter) for parameter in layer.parameters.values())]
        match layer:
            case Conv():
                value = add("Conv", inputs, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            case BatchNorm():
                statistics = [weight(layer.mean), weight(layer.variance)]
                value = add("BatchNormalization", inputs + statistics, epsilon=EPSILON)
            case Relu():
                value = add("Relu", inputs)
            case MaxPool():
                value = add("MaxPool", inputs, kernel_shape=[2, 2], strides=[2, 2])
            case Dense():
                value = add("Gemm", [add("Flatten", inputs[:1], axis=1), *inputs[1:]])
    add("Softmax", [value], "probabilities", axis=1)
    pictures = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 8, 8])
    chances = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [pictures], [chances], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def write_rten(model: onnx.ModelProto, path: Path) -> None:
    """Convert an ONNX model to .rten with rten-convert."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "digits.onnx"
        onnx.save(model, source)
        command = [sys.executable, "-m", "rten_convert.converter", str(source), str(path)]
        subprocess.run(command, check=True)


def write_pgm(picture: Floats, path: Path, enlarge: int = 8) -> None:
    """Write values in 0..1 as a binary PGM picture, every pixel as a square of `enlarge` pixels."""
    grey = np.rint(255 * picture).astype(np.uint8).repeat(enlarge, 0).repeat(enlarge, 1)
    path.write_bytes(b"P5 %d %d 255\n" % grey.shape[::-1] + grey.tobytes())


def _windows(x: Floats) -> Floats:
    """The 3x3 surroundings of every pixel, zero outside: (batch, channels, height, width, 3, 3)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))


def _moved(pictures: Floats, rng: np.random.Generator) -> Floats:
    down, right = rng.integers(0, 3, 2)
    return _windows(pictures)[..., down, right]


def main() -> None:
    """Train, report the accuracy on held-out pictures, write the model and a sample picture."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="folder to write to"
    )
    out = parser.parse_args().out
    rng = np.random.default_rng(SEED)
    digits = load_digits()
    pictures = (digits.images[:, None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = rng.permutation(len(pictures))
    held_out, rest = order[:TEST_SIZE], order[TEST_SIZE:]
    network = make_network(rng)
    train(network, pictures[rest], labels[rest], rng)
    chances = forward(network, pictures[held_out])
    right = chances.argmax(axis=1) == labels[held_out]
    print(f"accuracy on {TEST_SIZE} held-out pictures: {right.mean():.1%}")
    write_rten(to_onnx(network), out / "digits.rten")
    clearest_seven = held_out[chances[:, 7].argmax()]
    write_pgm(pictures[clearest_seven, 0], out / "seven.pgm")


if __name__ == "__main__":
    main()
