"""A model as ONNX: for viewers, and for ONNX Runtime as a second opinion."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx

import rten_aot.interop.rules_control
import rten_aot.interop.rules_special  # noqa: F401  (they register their operators)
from rten_aot.files import new_file
from rten_aot.format import Constant, DType, Graph, Model, OpNode, Value
from rten_aot.interop.elements import OPSET
from rten_aot.interop.external import ExternalData
from rten_aot.interop.graphs import finish, value_info, walk
from rten_aot.interop.scope import Scope, Shared

_IR_VERSION = 10

# What a protobuf message may hold, less what is not tensor data.
_INLINE_LIMIT = (1 << 31) - (1 << 26)


def export_onnx(model: Model, path: Path, *, inline_limit: int = _INLINE_LIMIT) -> Path | None:
    """Write a model as ``path``; returns the file beside it that has the weights, if there is one.

    Raises:
        CompileError: the model cannot be written as ONNX.
        OSError: a file cannot be written.
    """
    with new_file(path) as temporary:
        if _weight_bytes(model.graph) <= inline_limit:
            temporary.write_bytes(to_onnx(model).SerializeToString())
            return None
        data = path.with_name(path.name + ".data")
        with new_file(data) as place, ExternalData(place, data.name) as external:
            temporary.write_bytes(to_onnx(model, external).SerializeToString())
        return data


def to_onnx(model: Model, external: ExternalData | None = None) -> onnx.ModelProto:
    """A model as ONNX, its values in RTen's types: what is bool or int64 in ONNX is int32.

    Inputs and outputs have the names under which a compiled model has them, but for an output with
    the name of an input.

    Raises:
        CompileError: the model cannot be written as ONNX; names the node.
    """
    proto = onnx.ModelProto(ir_version=_IR_VERSION, producer_name="rten-aot")
    proto.opset_import.add(domain="", version=OPSET)
    for key, value in sorted(model.metadata.items()):
        proto.metadata_props.add(key=key, value=value)
    proto.doc_string = model.metadata.get("description", "")
    proto.graph.name = "main"
    _write_graph(model.graph, proto.graph, Shared(external=external))
    if external is None:
        _add_output_shapes(proto)
    return proto


def _add_output_shapes(proto: onnx.ModelProto) -> None:
    """ONNX wants outputs to have shapes, which files may lack; some cannot be known."""

    def lacking(info: onnx.ValueInfoProto) -> bool:
        return info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape")

    if not any(map(lacking, proto.graph.output)):
        return
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph.output
    for info, known in zip(proto.graph.output, inferred, strict=True):
        if lacking(info) and not lacking(known):
            info.type.tensor_type.shape.CopyFrom(known.type.tensor_type.shape)


def _write_graph(graph: Graph, proto: onnx.GraphProto, shared: Shared) -> None:
    inputs = _names(graph, graph.inputs, "input", shared)
    outputs = _names(graph, graph.outputs, "output", shared)
    reserved = dict(zip(graph.outputs, outputs, strict=True)) | dict(
        zip(graph.inputs, inputs, strict=True)
    )
    free = {i: n for i, n in reserved.items() if isinstance(graph.nodes[i], Value)}
    scope = Scope(graph, proto, shared, reserved=free)
    for index, name in zip(graph.inputs, inputs, strict=True):
        value = graph.nodes[index]
        assert isinstance(value, Value)
        dtype: DType = value.dtype or "float32"
        tensor = scope.define(index, dtype)
        scope.give(tensor, dtype, name)
        proto.input.append(value_info(tensor, name, dtype))
    walk(scope)
    tensors = [scope.tensor(i) for i in graph.outputs]
    finish(scope, [(t, t.dtype) for t in tensors], outputs)
    ends = {info.name for infos in (proto.input, proto.output) for info in infos}
    for tensor in scope.computed():
        if tensor.shape is not None and tensor.name not in ends:
            proto.value_info.append(value_info(tensor, tensor.name, tensor.dtype))


def _names(graph: Graph, places: Iterable[int], prefix: str, shared: Shared) -> list[str]:
    given = [graph.nodes[index].name for index in places]
    return [shared.values.unique(name or f"{prefix}_{i}") for i, name in enumerate(given)]


def _weight_bytes(graph: Graph) -> int:
    total = 0
    for node in graph.nodes:
        match node:
            case Constant():
                total += node.data.nbytes
            case OpNode():
                inner = [g for g in node.attrs.values() if isinstance(g, Graph)]
                total += sum(map(_weight_bytes, inner))
    return total
