"""ONNX graphs under construction: values in the element types that are asked for, unique names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from rten_aot.errors import ModelFormatError
from rten_aot.format import Constant, Dim, DType, Graph, OpNode, Value
from rten_aot.interop.elements import Element, proto_type
from rten_aot.interop.external import ExternalData


class Names:
    """Names that are used once in a model; ONNX wants that across its inner graphs too."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, wanted: str) -> str:
        """``wanted`` itself, or with ``_2``, ``_3`` … appended."""
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name


@dataclass(eq=False)
class Tensor:
    """A value of the model: its name, RTen's type, and the scope that owns it.

    ``shape`` is a hint. A sequence has the element type of its tensors.
    """

    name: str
    dtype: DType
    scope: Scope
    data: npt.NDArray[np.generic] | None = None
    shape: tuple[Dim, ...] | None = None
    sequence: bool = False


@dataclass(eq=False)
class Shared:
    """What all graphs of a model share."""

    values: Names = field(default_factory=Names)
    nodes: Names = field(default_factory=Names)
    external: ExternalData | None = None


class Scope:
    """A graph with the ONNX graph that is made of it.

    A value may be wanted in several element types: bool where ONNX wants conditions, int64 where it
    wants shapes. The types other than the given one are made when they are first asked for, in the
    graph that asks.
    """

    def __init__(
        self,
        graph: Graph,
        proto: onnx.GraphProto,
        shared: Shared,
        parent: Scope | None = None,
        reserved: Mapping[int, str] | None = None,
    ) -> None:
        """``reserved`` are names for values, by index, that are taken already."""
        self.graph = graph
        self._reserved = reserved or {}
        self.proto = proto
        self.shared = shared
        self._parent = parent
        self._tensors: dict[int, Tensor] = {}
        self._forms: dict[tuple[Tensor, Element], str] = {}
        self._by_name: dict[str, int] = {}
        for index, node in enumerate(graph.nodes):
            if not isinstance(node, OpNode):
                self._by_name.setdefault(node.name, index)

    def define(self, index: int, dtype: DType, *, sequence: bool = False) -> Tensor:
        """The value at ``index``, which an input or an operator gives from here on."""
        node = self.graph.nodes[index]
        name = self._reserved.get(index)
        if name is None:
            name = self.shared.values.unique(node.name or f"value_{index}")
        shape = node.shape if isinstance(node, Value) else None
        tensor = Tensor(name, dtype, self, shape=shape, sequence=sequence)
        self._tensors[index] = tensor
        return tensor

    def computed(self) -> list[Tensor]:
        """The graph's own values that exist under their names and types."""
        return [t for t, e in self._forms if t.scope is self and e == t.dtype and t.data is None]

    def tensor(self, index: int) -> Tensor:
        """The value at ``index``.

        Raises:
            ModelFormatError: nothing gives it before it is used.
        """
        if index not in self._tensors:
            node = self.graph.nodes[index]
            found = self._constant(index)
            if found is None and self._parent is not None:
                found = self._parent.lookup(node.name)
            if found is None:
                raise ModelFormatError(f'"{node.name}" is used before anything computes it')
            self._tensors[index] = found
        return self._tensors[index]

    def lookup(self, name: str) -> Tensor | None:
        """The value that an inner graph takes from this one, or from those around it, by name."""
        index = self._by_name.get(name)
        if index is not None:
            found = self._tensors.get(index) or self._constant(index)
            if found is not None:
                return found
        return self._parent.lookup(name) if self._parent else None

    def _constant(self, index: int) -> Tensor | None:
        node = self.graph.nodes[index]
        if not isinstance(node, Constant):
            return None
        name = self.shared.values.unique(node.name or f"constant_{index}")
        dtypes: Mapping[str, DType] = {
            "float32": "float32",
            "int32": "int32",
            "int8": "int8",
            "uint8": "uint8",
        }
        data = node.data
        self._tensors[index] = Tensor(name, dtypes[data.dtype.name], self, data, data.shape)
        return self._tensors[index]

    def give(self, tensor: Tensor, element: Element, name: str) -> None:
        """Say that ``name`` is the value in an element type."""
        self._forms[tensor, element] = name

    def form(self, tensor: Tensor, element: Element | None = None) -> str:
        """The name of the value in an element type, RTen's own by default."""
        element = element or tensor.dtype
        scope: Scope | None = self
        while scope is not None:
            if (tensor, element) in scope._forms:
                return scope._forms[tensor, element]
            scope = scope._parent
        if tensor.data is not None:
            return tensor.scope.stored(tensor, element)
        name = self.form_name(tensor, element)
        source = next(
            self.form(tensor, known)
            for known in (tensor.dtype, "bool", "int64")
            if known != element and self._has(tensor, known)
        )
        self.node("Cast", [source], [name], {"to": proto_type(element)})
        self._forms[tensor, element] = name
        return name

    def _has(self, tensor: Tensor, element: Element) -> bool:
        own = (tensor, element) in self._forms
        return own or (self._parent is not None and self._parent._has(tensor, element))

    def form_name(self, tensor: Tensor, element: Element) -> str:
        """A new name for the value in an element type; RTen's own type has the value's name."""
        if element == tensor.dtype and self is tensor.scope:
            return tensor.name
        return self.shared.values.unique(f"{tensor.name}_{element}")

    def stored(self, tensor: Tensor, element: Element) -> str:
        """A constant as an initializer."""
        assert tensor.data is not None
        name = self.form_name(tensor, element)
        self._forms[tensor, element] = name
        return self.constant(name, tensor.data.astype(element, copy=False))

    def constant(self, name: str, data: npt.NDArray[Any]) -> str:
        """Add an initializer."""
        proto = self.proto.initializer.add()
        proto.name = name
        proto.data_type = int(onnx.helper.np_dtype_to_tensor_dtype(data.dtype))
        proto.dims.extend(data.shape)
        if self.shared.external is None:
            proto.raw_data = data.tobytes()
        else:
            self.shared.external.store(proto, data)
        return name

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: Mapping[str, Any],
        *,
        name: str | None = None,
    ) -> onnx.NodeProto:
        """Add an operator; attributes that are None are left out."""
        node: onnx.NodeProto = self.proto.node.add()
        node.op_type = op
        node.name = self.shared.nodes.unique(name or op)
        names = list(inputs)
        while names and not names[-1]:
            names.pop()
        node.input.extend(names)
        node.output.extend(outputs)
        for key, value in attrs.items():
            if value is not None:
                node.attribute.append(onnx.helper.make_attribute(key, value))
        return node
