"""From a graph of the model to one of ONNX: inputs, the walk over the operators, results."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from rten_aot.format import Dim, Graph, OpNode
from rten_aot.interop.call import Call
from rten_aot.interop.elements import Element, proto_type
from rten_aot.interop.rules import write
from rten_aot.interop.scope import Scope, Tensor


def inner_scope(graph: Graph, proto: onnx.GraphProto, parent: Scope) -> Scope:
    """The scope of a branch or a loop's body."""
    return Scope(graph, proto, parent.shared, parent)


def walk(scope: Scope) -> None:
    """Write all operators of a graph whose inputs are defined."""
    for node in scope.graph.nodes:
        if isinstance(node, OpNode):
            write(Call(scope, node))


def finish(
    scope: Scope, results: Sequence[tuple[Tensor, Element]], names: Sequence[str] | None = None
) -> None:
    """Make ``results``, each in an element type, the graph's outputs, with the ``names`` if given.

    ONNX wants outputs to come from operators of the graph itself, each once.
    """
    used: set[str] = set()
    forms = [scope.form(tensor, element) for tensor, element in results]
    made = {name for node in scope.proto.node for name in node.output}
    for position, (tensor, element) in enumerate(results):
        name = forms[position]
        wanted = names[position] if names else name
        if wanted != name or name in used or name not in made:
            own = wanted if names else scope.shared.values.unique(f"{name}_result")
            scope.node("Identity", [name], [own], {})
            name = own
        used.add(name)
        scope.proto.output.append(value_info(tensor, name, element))


def value_info(tensor: Tensor, name: str, element: Element) -> onnx.ValueInfoProto:
    """Name, type and, where the model tells it, shape of a value."""
    info = onnx.ValueInfoProto(name=name)
    kind = info.type.sequence_type.elem_type if tensor.sequence else info.type
    kind.tensor_type.elem_type = proto_type(element)
    if tensor.shape is not None:
        _fill(kind.tensor_type.shape, tensor.shape)
    return info


def _fill(proto: onnx.TensorShapeProto, shape: Sequence[Dim]) -> None:
    proto.SetInParent()
    for size in shape:
        dim = proto.dim.add()
        match size:
            case int():
                dim.dim_value = size
            case str():
                dim.dim_param = size
