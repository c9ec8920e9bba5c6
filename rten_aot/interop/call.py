"""One operator of the model while it becomes operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rten_aot.format import DType, OpNode
from rten_aot.interop.attributes import onnx_attributes
from rten_aot.interop.elements import Element, kernel_type, proto_type
from rten_aot.interop.scope import Scope, Tensor


class Call:
    """What a rule sees of the operator, and what it makes."""

    def __init__(self, scope: Scope, node: OpNode) -> None:
        self.scope = scope
        self.node = node
        self.attrs = onnx_attributes(node)

    def tensor(self, position: int) -> Tensor | None:
        """The operand; None if it is left out."""
        inputs = self.node.inputs
        index = inputs[position] if position < len(inputs) else None
        return None if index is None else self.scope.tensor(index)

    def dtype(self, position: int) -> DType:
        """RTen's type of the operand; float32 if it is left out."""
        tensor = self.tensor(position)
        return tensor.dtype if tensor else "float32"

    def use(self, position: int, element: Element | None = None) -> str:
        """The operand's name in an element type, its own by default; empty if it is left out."""
        tensor = self.tensor(position)
        return self.scope.form(tensor, element) if tensor else ""

    def kernel(self, position: int) -> Element:
        """The type in which the operator is to be given this operand."""
        return kernel_type(self.node.op, self.dtype(position))

    def numbers(self, position: int) -> npt.NDArray[Any] | None:
        """The operand's contents if it is a constant."""
        tensor = self.tensor(position)
        return tensor.data if tensor else None

    def constant(self, data: npt.NDArray[Any], base: str) -> str:
        """A new constant."""
        return self.scope.constant(self.scope.temporary(base), data)

    def emit(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None
    ) -> str:
        """A further operator with one result, whose name is returned."""
        name = self.scope.temporary(f"{self.node.op.lower()}_{op.lower()}")
        self.scope.node(op, inputs, [name], attrs or {})
        return name

    def cast(self, name: str, element: Element) -> str:
        """A Cast of a value that the model does not have."""
        return self.emit("Cast", [name], {"to": proto_type(element)})

    def result(self, position: int, name: str, dtype: DType) -> None:
        """Make ``name``, of RTen's type ``dtype``, the operator's result."""
        self.results([(dtype, dtype)], lambda names: self.scope.node("Identity", [name], names, {}))

    def main(
        self,
        inputs: Sequence[str],
        types: Sequence[tuple[DType, Element]],
        attrs: Mapping[str, Any] | None = None,
        *,
        op: str | None = None,
        sequence: bool = False,
    ) -> None:
        """The operator itself, whose results have the ``types``: RTen's, and those in ONNX."""
        chosen = self.attrs if attrs is None else attrs
        self.results(
            types,
            lambda names: self._named(op or self.node.op, inputs, names, chosen),
            sequence=sequence,
        )

    def _named(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Any]
    ) -> None:
        made = self.scope.node(op, inputs, outputs, attrs)
        if self.node.name:
            made.name = self.scope.shared.nodes.unique(self.node.name)

    def results(
        self,
        types: Sequence[tuple[DType, Element]],
        make: Callable[[list[str]], object],
        *,
        sequence: bool = False,
    ) -> None:
        """Define the results; ``make`` gets their names, in which unused ones are empty."""
        names: list[str] = []
        casts: list[tuple[str, Tensor, Element]] = []
        for index, (dtype, element) in zip(self.node.outputs, types, strict=False):
            if index is None:
                names.append("")
                continue
            tensor = self.scope.define(index, dtype, sequence=sequence)
            name = self.scope.form_name(tensor, element)
            names.append(name)
            if element in (dtype, "bool", "int64") and not (dtype, element) in _INEXACT:
                self.scope.give(tensor, element, name)
            else:
                casts.append((name, tensor, element))
        make(names)
        for name, tensor, _ in casts:
            self.scope.node("Cast", [name], [tensor.name], {"to": proto_type(tensor.dtype)})
            self.scope.give(tensor, tensor.dtype, tensor.name)


_INEXACT: frozenset[tuple[str, str]] = frozenset()
_ = np
