"""Operators with inner graphs, and those on sequences."""

from __future__ import annotations

import onnx

from rten_aot.errors import InternalError, UnsupportedOpError
from rten_aot.format import Graph
from rten_aot.interop.call import INT64, Call, Result
from rten_aot.interop.elements import Element
from rten_aot.interop.graphs import finish, inner_scope, value_info, walk
from rten_aot.interop.rules import rule
from rten_aot.interop.rules_special import dtype_attr
from rten_aot.interop.scope import Scope, Tensor


@rule("If")
def if_(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__If.html."""
    protos, outputs = [], []
    for key in ("then_branch", "else_branch"):
        graph = _graph(call, key)
        proto = onnx.GraphProto(name=key)
        scope = inner_scope(graph, proto, call.scope)
        walk(scope)
        tensors = [scope.tensor(i) for i in graph.outputs]
        finish(scope, [(t, t.dtype) for t in tensors])
        protos.append((key, proto))
        outputs.append(tensors)
    _alike(call, *outputs)
    _main(call, [call.use(0, "bool")], outputs[0], protos)


@rule("Loop")
def loop(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__Loop.html."""
    graph = _graph(call, "body")
    proto = onnx.GraphProto(name="body")
    scope = inner_scope(graph, proto, call.scope)
    states = [call.tensor(i) for i in range(2, len(call.node.inputs))]
    count, condition, *carried = graph.inputs
    _parameter(scope, scope.define(count, "int32"), "int64")
    _parameter(scope, scope.define(condition, "int32"), "bool")
    for index, state in zip(carried, states, strict=True):
        if state is None:
            raise UnsupportedOpError("a carried value is left out", node=call.node.name, op="Loop")
        tensor = scope.define(index, state.dtype, sequence=state.sequence)
        _parameter(scope, tensor, state.dtype)
    walk(scope)
    first, *results = (scope.tensor(i) for i in graph.outputs)
    finish(scope, [(first, "bool"), *((t, t.dtype) for t in results)])
    inputs = [call.use(0, "int64"), call.use(1, "bool")]
    inputs += [call.use(i + 2) for i in range(len(states))]
    _main(call, inputs, results, [("body", proto)])


def _graph(call: Call, key: str) -> Graph:
    graph = call.node.attrs[key]
    if not isinstance(graph, Graph):
        raise InternalError(f"attribute {key} of {call.node.op} is no graph")
    return graph


def _alike(call: Call, first: list[Tensor], second: list[Tensor]) -> None:
    kinds = [[(t.dtype, t.sequence) for t in tensors] for tensors in (first, second)]
    if kinds[0] != kinds[1]:
        raise UnsupportedOpError(
            "the branches give results of different types", node=call.node.name, op="If"
        )


def _parameter(scope: Scope, tensor: Tensor, element: Element) -> None:
    name = scope.form_name(tensor, element)
    scope.give(tensor, element, name)
    scope.proto.input.append(value_info(tensor, name, element))


def _main(
    call: Call, inputs: list[str], results: list[Tensor], graphs: list[tuple[str, onnx.GraphProto]]
) -> None:
    """The operator, whose results may be sequences, some or all of them."""
    names = []
    for index, result in zip(call.node.outputs, results, strict=False):
        if index is None:
            names.append(call.scope.shared.values.unique(f"{call.node.op}_unused"))
            continue
        tensor = call.scope.define(index, result.dtype, sequence=result.sequence)
        names.append(tensor.name)
        call.scope.give(tensor, tensor.dtype, tensor.name)
    node = call.scope.node(call.node.op, inputs, names, {}, name=call.node.name or None)
    for key, proto in graphs:
        attribute = node.attribute.add()
        attribute.name, attribute.type = key, onnx.AttributeProto.GRAPH
        attribute.g.MergeFrom(proto)


@rule("SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", "SplitToSequence")
def sequence(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__SequenceInsert.html and the like."""
    dtype = call.dtype(0)
    if call.node.op == "SequenceEmpty":
        dtype = dtype_attr(call, "dtype", "float32")
    attrs = dict(call.attrs)
    if call.node.op == "SplitToSequence" and call.tensor(1):
        attrs.pop("keepdims", None)
    inputs = [call.use(i) for i in range(len(call.node.inputs))]
    call.main(inputs, [Result(dtype)], attrs, sequence=True)


@rule("SequenceAt")
def sequence_at(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__SequenceAt.html."""
    call.main([call.use(0), call.use(1)], [Result(call.dtype(0))])


@rule("SequenceLength")
def sequence_length(call: Call) -> None:
    """https://onnx.ai/onnx/operators/onnx__SequenceLength.html."""
    call.main([call.use(0)], [INT64])
