"""What an operator's importing function can ask and do."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer

from rten_aot.dialect import registry as dialect
from rten_aot.dialect.broadcast import same
from rten_aot.dialect.origins import with_nodes
from rten_aot.errors import ShapeError, UnsupportedOpError, node_text
from rten_aot.format.graph import OpNode
from rten_aot.importer.attrs import AttrReader
from rten_aot.importer.size_text import size_text

if TYPE_CHECKING:
    from rten_aot.importer.translate import Scope, Translator

Size: TypeAlias = "int | tirx.Expr"
Contents: TypeAlias = npt.NDArray[np.object_]
Integers: TypeAlias = relax.Expr
"""An input of sizes, axes or indices; see ``registry.op``."""

_SIZE_LIMIT = tirx.const(1 << 40, "int64")
"""Above every size that can occur."""

_TOO_MANY = 1 << 60
"""More elements than any memory holds, with room for some arithmetic in int64."""

MAX_KNOWN_ELEMENTS = 256
"""Tensors with more elements are data, not shape arithmetic; their content is not tracked."""


@dataclass(frozen=True)
class Check:
    """A condition on sizes that the host program tests before the first kernel that needs it."""

    condition: tirx.Expr
    node: int
    message: str


@dataclass
class GraphState:
    """What is shared by all nodes of one graph (the main graph or a branch)."""

    builder: relax.BlockBuilder
    checks: list[Check] = field(default_factory=list)
    known: dict[relax.Var, Contents] = field(default_factory=dict)
    measured: list[tuple[relax.Var, tuple[tirx.Var, ...]]] = field(default_factory=list)
    """Tensors whose elements, once computed, are the values of size variables.

    Those without variables have sizes that only computing them tells.
    """
    analyzer: Analyzer = field(default_factory=Analyzer)
    sizes: set[tirx.Var] = field(default_factory=set)
    """Variables that are known not to be negative."""

    def declare(self, sizes: Iterable[tirx.Var]) -> None:
        """Let simplification rely on the variables being sizes."""
        for size in sizes:
            self.sizes.add(size)
            self.analyzer.bind(size, tvm.ir.Range(0, _SIZE_LIMIT))


def can_exist(shape: Sequence[Size]) -> bool:
    """Whether memory may have room for a tensor, zeros among its sizes left out of account.

    What it has none for would make numbers of elements overflow.
    """
    sizes = [static(size) or 1 for size in shape]
    return math.prod(sizes) < _TOO_MANY


def static(size: Size) -> int | None:
    """The size as a Python int, None if it is symbolic."""
    if isinstance(size, int):
        return size
    if isinstance(size, tirx.IntImm):
        return int(size.value)
    return None


class OpContext:
    """One node under conversion. All sizes are Python ints or int64 PrimExprs."""

    def __init__(
        self,
        state: GraphState,
        node: OpNode,
        node_index: int,
        translator: Translator,
        scope: Scope,
    ) -> None:
        self.state = state
        self.node = node
        self.node_index = node_index
        self.attrs = AttrReader(node)
        self.translator = translator
        self.scope = scope

    # -- emitting ------------------------------------------------------------------------------

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression to a new variable of known type."""
        result = self.state.builder.emit(with_nodes(expr, [self.node_index]))
        if isinstance(result.ty, relax.TensorType) and not can_exist(result.ty.shape.values):
            shape = ", ".join(map(self.text, self.shape(result)))
            self.shape_error(f"no memory can hold a result of shape [{shape}]")
        return result

    def call(self, name: str, *operands: relax.Expr, **attrs: dialect.AttrValue) -> Any:
        """Emit a call of the operator ``rten.<name>``; a list of variables if it gives many."""
        result = self.emit(dialect.call(name, *operands, **attrs))
        if isinstance(result.ty, relax.TupleType):
            return [self.emit(relax.TupleGetItem(result, i)) for i in range(len(result.ty.fields))]
        return result

    def const(self, array: npt.ArrayLike, dtype: str | None = None) -> relax.Expr:
        """A constant tensor."""
        data = np.ascontiguousarray(array, dtype).reshape(np.shape(array))
        return relax.const(data, str(data.dtype))

    def known(self, array: Contents | npt.ArrayLike, dtype: str) -> relax.Expr:
        """A tensor whose content is known now: ints, floats or int64 PrimExprs.

        It is a constant if all elements are numbers; otherwise it is computed from the sizes at run
        time, if anything uses it as data.
        """
        content = np.array(array, dtype=object)
        for position, value in enumerate(content.flat):
            content.flat[position] = self._simplify(value)
        if not any(isinstance(v, tvm.ir.Expr) for v in content.flat):
            if dtype != "float32":
                return self.const(_wrap(content, dtype).astype(dtype))
            numbers = content.astype(dtype)
            # The sign of a NaN that was computed depends on the CPU that compiles.
            return self.const(np.where(np.isnan(numbers), np.float32(np.nan), numbers))
        vector = self.call("sizes_to_tensor", self.shape_expr(list(content.flat)), dtype=dtype)
        result = self.reshape(vector, list(content.shape))
        self.state.known[result] = content
        return result

    def reshape(self, x: relax.Expr, shape: Sequence[Size]) -> relax.Expr:
        """The same elements under another shape, at no cost; known contents stay known."""
        if all(isinstance(s, int) for s in shape):
            constant = self.constant_array(x)
            if constant is not None:
                return self.const(constant.reshape(list(shape)))
            content = self.contents(x)
            if content is not None:
                return self.known(content.reshape(list(shape)), self.dtype(x))
        if any(isinstance(s, int) and s == 0 for s in shape):
            # Relax would take the 0 for "as the input has it".
            return self.call("full", self.shape_expr(shape), value=0, dtype=self.dtype(x))
        return self.emit(relax.op.reshape(x, self.shape_expr(shape)))

    # -- asking --------------------------------------------------------------------------------

    def shape(self, x: relax.Expr) -> list[Size]:
        """The shape; static sizes as Python ints."""
        sizes: list[Size] = []
        for dim in x.ty.shape.values:
            known = static(dim)
            sizes.append(self._simplify(dim) if known is None else known)
        return sizes

    def rank(self, x: relax.Expr) -> int:
        """The number of axes."""
        return len(x.ty.shape.values)

    def dtype(self, x: relax.Expr) -> str:
        """The element type: float32, int32, int8 or uint8."""
        return str(x.ty.dtype)

    def constant_array(self, x: relax.Expr) -> npt.NDArray[Any] | None:
        """The value of a constant, None if ``x`` is none."""
        if isinstance(x, tvm.ir.GenericConst):
            value: npt.NDArray[Any] = x.value.numpy()
            return value
        return None

    def contents(self, x: relax.Expr) -> Contents | None:
        """The elements of a small tensor whose content is known now, else None."""
        if isinstance(x, tvm.ir.GenericConst):
            array = x.value.numpy()
            if array.size > MAX_KNOWN_ELEMENTS:
                return None
            result: Contents = array.astype(object)
            if array.dtype != np.float32:
                for position, value in enumerate(array.flat):
                    result.flat[position] = int(value)
            return result
        return self.state.known.get(x)

    def ints(self, x: relax.Expr, what: str) -> list[Size]:
        """The known integers in ``x``; ``what`` names the input in the error if they are not."""
        content = self.contents(x)
        if content is None:
            self.fail(f"{what} must be known at compile time (constants or sizes of inputs)")
        return [int(v) if not isinstance(v, tvm.ir.Expr) else v for v in content.flat]

    def shape_expr(self, sizes: Sequence[Size]) -> relax.ShapeExpr:
        """Sizes as an operand."""
        for size in sizes:
            if isinstance(size, int) and abs(size) >= _TOO_MANY:
                self.shape_error(f"a size of {size} is too large")
        return relax.ShapeExpr([tirx.const(s, "int64") if isinstance(s, int) else s for s in sizes])

    def normalize_axis(self, axis: int, rank: int, attr: str = "axis") -> int:
        """``axis`` counted from 0; it must lie in [-rank, rank)."""
        if not -rank <= axis < rank:
            raise ShapeError(
                f"value {axis} is out of range for a tensor of rank {rank}",
                node=self.node.name,
                op=self.node.op,
                attr=attr,
            )
        return axis % rank

    # -- sizes that must agree -----------------------------------------------------------------

    def same(self, a: Size, b: Size) -> bool:
        """Whether two sizes are known to be equal."""
        return same(_expr(a), _expr(b), self.state.analyzer)

    def require(self, condition: tirx.Expr, message: str) -> None:
        """Have the condition tested when the model runs."""
        if any(tvm_ffi.structural_equal(condition, c.condition) for c in self.state.checks):
            return
        text = f"{node_text(self.node.name, self.node.op)}: {message}"
        self.state.checks.append(Check(condition, self.node_index, text))

    def measure(
        self, counts: relax.Var, *names: str, signed: Collection[int] = ()
    ) -> list[tirx.Var]:
        """New size variables whose values the model itself computes.

        ``counts`` is an int64 vector with one element for each name, which says what it is; those
        at the positions ``signed`` may be negative. What depends on the variables must be emitted
        after it.
        """
        sizes = tuple(self.new_size(name) for name in names)
        self.state.measured.append((counts, sizes))
        self.state.declare(size for i, size in enumerate(sizes) if i not in signed)
        return list(sizes)

    def new_size(self, name: str) -> tirx.Var:
        """A variable for a size that this node makes; messages call it ``name``."""
        label = re.sub(r"\W", "_", name)
        size = tirx.Var(f"{label}_at_{self.node_index}", "int64")
        node = f'"{self.node.name}"' if self.node.name else str(self.node_index)
        self.translator.size_texts[size.name] = f"<{name} of node {node}>"
        return size

    def keep(self, value: relax.Var) -> None:
        """Have ``value`` computed even if nothing uses more of it than its sizes."""
        self.state.measured.append((value, ()))

    def equal_dims(self, a: Size, b: Size, what: str = "sizes") -> Size:
        """The one size that both stand for; a run-time check where that is not known now."""
        a, b = self._simplify(a), self._simplify(b)
        if self.same(a, b):
            return a
        message = f"{what} {self.text(a)} and {self.text(b)} differ"
        if isinstance(a, int) and isinstance(b, int):
            self.shape_error(message)
        self.require(tirx.EQ(_expr(a), _expr(b)), message)
        return a if isinstance(a, int) else b

    def text(self, size: Size) -> str:
        """A size in a message."""
        return size_text(size, self.translator.size_texts)

    # -- refusing ------------------------------------------------------------------------------

    def fail(self, message: str, attr: str | None = None, hint: str | None = None) -> NoReturn:
        """Refuse what is not supported."""
        raise UnsupportedOpError(
            message, node=self.node.name, op=self.node.op, attr=attr, hint=hint
        )

    def shape_error(self, message: str, hint: str | None = None) -> NoReturn:
        """Refuse shapes or types that contradict each other."""
        raise ShapeError(message, node=self.node.name, op=self.node.op, hint=hint)

    def _simplify(self, value: Any) -> Any:
        if isinstance(value, tirx.IntImm):
            return int(value.value)
        if isinstance(value, tvm.ir.Expr):
            simple = self.state.analyzer.simplify(value)
            return int(simple.value) if isinstance(simple, tirx.IntImm) else simple
        return value


def _expr(size: Size) -> tirx.Expr:
    return tirx.const(size, "int64") if isinstance(size, int) else size


def _wrap(values: Contents, dtype: str) -> npt.NDArray[Any]:
    info = np.iinfo(dtype)
    span = info.max - info.min + 1
    flat = [(int(v) - info.min) % span + info.min for v in values.flat]
    return np.array(flat, dtype=dtype).reshape(values.shape)
