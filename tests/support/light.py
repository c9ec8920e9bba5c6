"""The onnx package's classic networks, with random weights a comparison can be made on.

As shipped, nearly all their weights are one constant, written as ConstantOfShape nodes, so every
output is alike. Here each weight is drawn anew according to its role, from a seed that depends on
its name alone.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

# Raise when the weights change: it is part of the cached file's name.
RECIPE = 1

# Keep the variance of a sum near that of its shortcut, block after block: `branch` is added to the
# shortcut itself, `projection` to another BatchNormalization.
_GAINS = {"scale": 1.0, "branch": 0.25, "projection": 0.7}


def build(name: str) -> onnx.ModelProto:
    """Load `light_<name>.onnx` and give it seeded weights.

    The graph's outputs become the scores before the final Softmax, if there is one, and then the
    Softmax itself. Its axis is made explicit: opset 9 defaults to 1, but rten-convert writes 0 for
    a missing attribute. Initializers stop being inputs.
    """
    source = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"
    model = onnx.load(source)
    model.ir_version = 4  # the first in which initializers need not be inputs
    graph = model.graph
    shapes = _weight_shapes(graph)
    roles = _weight_roles(graph, shapes)
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    used = {value for node in kept for value in node.input}
    weights = [
        numpy_helper.from_array(_draw(weight, shapes[weight], role), weight)
        for weight, role in roles.items()
    ]
    others = [each for each in graph.initializer if each.name in used and each.name not in roles]
    data = [each for each in graph.input if each.name in used and each.name not in shapes]
    for field, values in (
        (graph.node, kept),
        (graph.initializer, weights + others),
        (graph.input, data),
    ):
        del field[:]
        field.extend(values)
    _expose_scores(graph)
    onnx.checker.check_model(model)
    return model


def _weight_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    stored = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    shapes = {name: array.shape for name, array in stored.items()}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(int(size) for size in stored[node.input[0]])
    return shapes


def _weight_roles(graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]]) -> dict[str, str]:
    users: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
    for node in graph.node:
        for position, value in enumerate(node.input):
            users[value].append((node, position))
    makers = {value: node.op_type for node in graph.node for value in node.output}
    roles: dict[str, str] = {}
    for weight in shapes:
        for node, position in users[weight]:
            # A per-channel factor or summand is unsqueezed on its way to Mul or Add.
            if node.op_type == "Unsqueeze":
                node, position = users[node.output[0]][0]
            match node.op_type, position:
                case (("Conv" | "Gemm"), 1):
                    roles[weight] = "kernel"
                case (("Conv" | "Gemm"), 2):
                    roles[weight] = "shift"
                case "BatchNormalization", 1:
                    sums = [user for user, _ in users[node.output[0]] if user.op_type == "Sum"]
                    shortcuts = {makers[value] for each in sums for value in each.input}
                    projected = shortcuts == {"BatchNormalization"}
                    roles[weight] = "projection" if projected else "branch" if sums else "scale"
                case "BatchNormalization", _:
                    roles[weight] = "scale" if position == 4 else "shift"
                case "Mul", _:
                    roles[weight] = "scale"
                case "Add", _:
                    roles[weight] = "shift"
    return roles


def _draw(name: str, shape: tuple[int, ...], role: str) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if role == "kernel":
        fan_in = int(np.prod(shape[1:]))
        weights = rng.standard_normal(shape, dtype=np.float32)
        weights *= np.float32(np.sqrt(2 / fan_in))
        return weights
    if role == "shift":
        return rng.uniform(-0.05, 0.05, shape).astype(np.float32)
    return (_GAINS[role] * rng.uniform(0.9, 1.1, shape)).astype(np.float32)


def _expose_scores(graph: onnx.GraphProto) -> None:
    last = graph.node[-1]
    if last.op_type != "Softmax":
        return
    if not last.attribute:
        last.attribute.append(onnx.helper.make_attribute("axis", 1))
    scores = onnx.ValueInfoProto()
    scores.CopyFrom(graph.output[0])
    scores.name = last.input[0]
    graph.output.insert(0, scores)
