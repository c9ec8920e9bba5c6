"""One operator of the model while it becomes operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx

from rten_aot.errors import UnsupportedOpError
from rten_aot.format import DType, OpNode
from rten_aot.interop.attributes import onnx_attributes
from rten_aot.interop.elements import OPSET, Element, kernel_type, proto_type
from rten_aot.interop.scope import Scope, Tensor


@dataclass(frozen=True)
class Result:
    """The type of a result in RTen, and what ONNX gives in its place if that is another one.

    A ``loose`` one may not fit RTen's type, to which it is cast at once.
    """

    dtype: DType
    element: Element | None = None
    loose: bool = False


BOOL = Result("int32", "bool")
INT64 = Result("int32", "int64")


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

    def like(self, position: int) -> Result:
        """A result of the type of an operand."""
        element = self.kernel(position)
        return Result(self.dtype(position), element, loose=element != self.dtype(position))

    def numbers(self, position: int) -> npt.NDArray[Any] | None:
        """The operand's contents if it is a constant."""
        tensor = self.tensor(position)
        return tensor.data if tensor else None

    def constant(self, data: npt.NDArray[Any], base: str) -> str:
        """A new constant."""
        return self.scope.constant(self.scope.shared.values.unique(base), data)

    def emit(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None) -> str:
        """A further operator with one result, whose name is returned."""
        name = self.scope.shared.values.unique(f"{self.node.op}_{op}")
        self.scope.node(op, inputs, [name], attrs or {})
        return name

    def cast(self, name: str, element: Element) -> str:
        """A Cast of a value that the model does not have."""
        return self.emit("Cast", [name], {"to": proto_type(element)})

    def main(
        self,
        inputs: Sequence[str],
        results: Sequence[Result],
        attrs: Mapping[str, Any] | None = None,
        *,
        op: str | None = None,
        sequence: bool = False,
    ) -> None:
        """The operator itself, with the attributes of the node unless others are given."""
        chosen = self.attrs if attrs is None else attrs
        name = self.node.name or None

        def make(outputs: list[str]) -> None:
            self.scope.node(op or self.node.op, inputs, outputs, chosen, name=name)

        self.results(results, make, sequence=sequence)

    def results(
        self,
        results: Sequence[Result],
        make: Callable[[list[str]], object],
        *,
        sequence: bool = False,
    ) -> None:
        """Define the results; ``make`` gets their names, in which unused ones may be empty."""
        extra = [i for i in self.node.outputs[len(results) :] if i is not None]
        if extra:
            raise UnsupportedOpError(
                f"output {len(results)} cannot be written as ONNX",
                node=self.node.name,
                op=self.node.op,
            )
        names: list[str] = []
        loose: list[tuple[str, Tensor]] = []
        for position, (index, result) in enumerate(zip(self.node.outputs, results, strict=False)):
            if index is None:
                names.append(self._unused(position))
                continue
            tensor = self.scope.define(index, result.dtype, sequence=sequence)
            element = result.element or result.dtype
            names.append(self.scope.form_name(tensor, element))
            if result.loose:
                loose.append((names[-1], tensor))
            else:
                self.scope.give(tensor, element, names[-1])
        while names and not names[-1]:
            names.pop()
        make(names)
        for name, tensor in loose:
            self.scope.node("Cast", [name], [tensor.name], {"to": proto_type(tensor.dtype)})
            self.scope.give(tensor, tensor.dtype, tensor.name)

    def _unused(self, position: int) -> str:
        """A name for a result that nothing uses, if ONNX wants it to have one."""
        outputs = onnx.defs.get_schema(self.node.op, OPSET).outputs
        optional = outputs[min(position, len(outputs) - 1)].option
        if optional == onnx.defs.OpSchema.FormalParameterOption.Optional:
            return ""
        return self.scope.shared.values.unique(f"{self.node.op}_unused")
