"""Expressions as CUDA text: statements that compute every common part once, and the results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

from rten_aot.errors import InternalError
from rten_aot.targets.common.access import flat_indices, flat_offset
from rten_aot.targets.common.expr import (
    Buffer,
    Rewriter,
    canonical,
    constant_int,
    dtype_of,
    is_call,
    loads,
)
from rten_aot.targets.common.loops import Loops
from rten_aot.targets.common.values import Interner
from rten_aot.targets.cuda.words import (
    BITWISE,
    FUNCTIONS,
    OPERATORS,
    c_type,
    float_text,
    reinterpret_text,
)


@dataclass
class _Scope:
    """A block of statements; ``known`` are the names of the nodes that were computed in it."""

    outer: _Scope | None = None
    lines: list[str] = field(default_factory=list)
    known: dict[int, str] = field(default_factory=dict)

    def find(self, node: int) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            if node in scope.known:
                return scope.known[node]
            scope = scope.outer
        return None


INDEX = "$INDEX$"
"""What stands for the type of indices in a text for both."""


@dataclass(frozen=True)
class Indices:
    """How indices are computed: in 32 bits if everything that is addressed is short enough."""

    type: str
    """``int``, ``long long``, or ``INDEX``."""
    fit: Expr | None = None
    """For ``INDEX`` the condition on sizes under which 32 bits do."""


class Writer:
    """Writes the body of one kernel."""

    def __init__(self, loops: Loops, indices: Indices) -> None:
        self.loops = loops
        self.lines: list[str] = []
        self.indices = indices
        self.fails = False
        """Whether the text may record a failure."""
        self.parameters: dict[Buffer | tirx.Var, str] = {}
        """The buffers and sizes that the text uses, with their names."""
        self.written: set[Buffer] = set()
        """The buffers that it stores to."""
        self._locals: dict[Buffer, str] = {}
        self._vars: dict[tirx.Var, str] = {}
        self._data: set[tirx.Var] = set()
        self._count = itertools.count()

    @property
    def index(self) -> str:
        """The type of indices."""
        return self.indices.type

    def fresh(self, stem: str) -> str:
        """A name that nothing else has."""
        return f"{stem}{next(self._count)}"

    def name(self, var: tirx.Var, text: str) -> None:
        """From now on the variable is what ``text``, a name or the like, says."""
        self._vars[var] = text

    def hold(self, var: tirx.Var, text: str) -> None:
        """As ``name``, for a variable that holds data: it is no index, whatever its type."""
        self._vars[var] = text
        self._data.add(var)

    def is_data(self, var: tirx.Var) -> bool:
        """Whether the variable holds data."""
        return var in self._data

    def add(self, *lines: str) -> None:
        """Append statements."""
        self.lines += lines

    def values(self, exprs: Sequence[Expr]) -> list[str]:
        """Append statements that compute the expressions; returns names or short texts of them."""
        texts = _Values(self, exprs)
        results = texts.results()
        self.lines += texts.root.lines
        return results

    def store(self, buffer: Buffer, indices: Sequence[Expr], value: str) -> None:
        """Append ``buffer[indices] = value``."""
        (offset,) = self.values([flat_offset(buffer, indices, self.loops)])
        self.written.add(buffer)
        self.add(f"{self.buffer(buffer)}[{offset}] = {value};")

    def buffer(self, buffer: Buffer) -> str:
        """The name of a pointer to the buffer's elements."""
        if buffer in self._locals:
            return self._locals[buffer]
        return self.parameters.setdefault(buffer, f"p{len(self.parameters)}")

    def local(self, buffer: Buffer, name: str) -> None:
        """From now on the buffer is a local array."""
        self._locals[buffer] = name

    def variable(self, var: tirx.Var) -> str:
        """What stands for a variable."""
        if var in self._vars:
            return self._vars[var]
        if not self.loops.is_size(var):
            raise InternalError(f"no value for {var.name} in a CUDA kernel")
        return self.parameters.setdefault(var, f"n{len(self.parameters)}")


class _Values:
    """The text of a few expressions."""

    def __init__(self, writer: Writer, exprs: Sequence[Expr]) -> None:
        self._writer = writer
        self._interner = Interner()
        flat = Rewriter(self._flatten)
        self._roots = [self._interner.number(flat(canonical(e))) for e in exprs]
        self.root = _Scope()
        self._uses: dict[int, int] = {}
        self._pure: dict[int, bool] = {}
        self._safe: dict[int, bool] = {}
        self._strict: set[int] = set()

    def _flatten(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad):
            inner = Rewriter(self._flatten)
            indices = [inner(i) for i in node.indices]
            offset = flat_offset(node.source, indices, self._writer.loops)
            return tirx.BufferLoad(node.source, flat_indices(node.source, offset))
        return None

    def results(self) -> list[str]:
        counted: set[int] = set()
        for root in self._roots:
            self._uses[root] = self._uses.get(root, 0) + 1
            self._count(root, counted)
            self._mark_strict(root)
        return [self._build(root, self.root) for root in self._roots]

    def _count(self, node: int, counted: set[int]) -> None:
        if node in counted:
            return
        counted.add(node)
        for child in self._interner.operands[node]:
            self._uses[child] = self._uses.get(child, 0) + 1
            self._count(child, counted)

    def _mark_strict(self, node: int) -> None:
        if node in self._strict:
            return
        self._strict.add(node)
        operands = self._interner.operands[node]
        is_branch = self._is_choice(node) and not all(map(self._is_pure, operands[1:]))
        for child in operands[:1] if is_branch else operands:
            self._mark_strict(child)

    def _is_choice(self, node: int) -> bool:
        expr = self._interner.nodes[node]
        return is_call(expr, "if_then_else") or isinstance(expr, tirx.Select)

    def _is_safe(self, node: int) -> bool:
        """Whether the value can be computed whatever conditions say."""
        known = self._safe.get(node)
        if known is None:
            expr = self._interner.nodes[node]
            known = node in self._strict or (
                not (isinstance(expr, TensorLoad) or is_call(expr, "call_extern"))
                and all(map(self._is_safe, self._interner.operands[node]))
            )
            self._safe[node] = known
        return known

    def _is_pure(self, node: int) -> bool:
        """Whether the value can be computed anywhere: no memory is read, nothing recorded."""
        known = self._pure.get(node)
        if known is None:
            expr = self._interner.nodes[node]
            known = self._pure[node] = not (
                isinstance(expr, TensorLoad) or is_call(expr, "call_extern")
            ) and all(self._is_pure(o) for o in self._interner.operands[node])
        return known

    def _is_index(self, node: int) -> bool:
        """Whether the node is an index, and no value of 64 bits that is computed from data."""
        return dtype_of(self._interner.nodes[node]) == "int64" and self._is_plain(node)

    def _is_plain(self, node: int) -> bool:
        expr = self._interner.nodes[node]
        if isinstance(expr, tirx.Var) and self._writer.is_data(expr):
            return False
        if isinstance(expr, tirx.IntImm) and abs(int(expr.value)) >= 1 << 31:
            return False
        if isinstance(expr, (TensorLoad, Call)) or dtype_of(expr).startswith(("float", "uint")):
            return is_call(expr, "if_then_else") and all(
                self._is_plain(o) for o in self._interner.operands[node]
            )
        return all(self._is_plain(o) for o in self._interner.operands[node])

    def _type(self, node: int) -> str:
        return (
            self._writer.index
            if self._is_index(node)
            else c_type(dtype_of(self._interner.nodes[node]))
        )

    # --- nodes ---------------------------------------------------------------------------------

    def _build(self, node: int, scope: _Scope) -> str:
        expr = self._interner.nodes[node]
        if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
            return self._constant(node, expr)
        if isinstance(expr, tirx.Var):
            return self._writer.variable(expr)
        if isinstance(expr, tvm.ir.StringImm):
            return ""  # the name of a function, which its call reads itself
        target = self.root if self._is_safe(node) else scope
        known = target.find(node)
        if known is not None:
            return known
        operands = self._interner.operands[node]
        if self._is_choice(node) and not all(map(self._is_safe, operands[1:])):
            return self._branch(node, target)
        if isinstance(expr, TensorLoad):
            operands = operands[-1:]  # the others are 0
        text = self._text(node, expr, [self._build(o, target) for o in operands])
        if self._uses[node] <= 1 and len(text) < 200 and not isinstance(expr, TensorLoad):
            return f"({text})"
        return self._bind(node, text, target)

    def _bind(self, node: int, text: str, scope: _Scope) -> str:
        name = scope.known[node] = self._writer.fresh("t")
        scope.lines.append(f"const {self._type(node)} {name} = {text};")
        return name

    def _branch(self, node: int, scope: _Scope) -> str:
        condition, *arms = self._interner.operands[node]
        test = self._build(condition, scope)
        inner = [_Scope(scope), _Scope(scope)]
        texts = [self._build(arm, s) for arm, s in zip(arms, inner, strict=True)]
        name = scope.known[node] = self._writer.fresh("t")
        scope.lines.append(f"{self._type(node)} {name};")
        for word, s, text in zip((f"if ({test})", "else"), inner, texts, strict=True):
            scope.lines.append(f"{word} {{")
            scope.lines += [*(f"  {line}" for line in s.lines), f"  {name} = {text};"]
            scope.lines.append("}")
        return name

    def _constant(self, node: int, expr: tirx.IntImm | tirx.FloatImm) -> str:
        dtype = dtype_of(expr)
        if isinstance(expr, tirx.FloatImm):
            return float_text(float(expr.value), dtype)
        value = int(expr.value)
        if dtype == "bool":
            return "true" if value else "false"
        if dtype.startswith("uint"):
            return f"{value & (1 << int(dtype[4:])) - 1}{'ull' if dtype == 'uint64' else 'u'}"
        if dtype == "int64" and not self._is_index(node):
            return f"(-{2**63 - 1}ll - 1)" if value == -(2**63) else f"{value}ll"
        if value == -(2**31):
            return f"(-{2**31 - 1} - 1)"
        return f"({value})" if value < 0 else str(value)

    def _text(self, node: int, expr: Expr, operands: Sequence[str]) -> str:
        kind = type(expr)
        if kind in OPERATORS:
            return f"{operands[0]} {OPERATORS[kind]} {operands[1]}"
        match expr:
            case TensorLoad():
                return f"{self._writer.buffer(expr.source)}[{operands[0] if operands else 0}]"
            case tirx.FloorDiv() | tirx.FloorMod():
                return self._floor(node, expr, operands)
            case tirx.Min() | tirx.Max():
                word = "min" if isinstance(expr, tirx.Min) else "max"
                return f"rten_{word}<{self._type(node)}>({operands[0]}, {operands[1]})"
            case tirx.Not():
                return f"!{operands[0]}"
            case tirx.BitwiseNot():
                return f"~{operands[0]}"
            case tirx.Select():
                return f"{operands[0]} ? {operands[1]} : {operands[2]}"
            case tirx.Cast():
                return f"({self._type(node)}){operands[0]}"
            case Call():
                return self._call(node, expr, operands)
        raise InternalError(f"no CUDA text for {kind.__name__}")

    def _floor(self, node: int, expr: Expr, operands: Sequence[str]) -> str:
        word, function = ("/", "div") if isinstance(expr, tirx.FloorDiv) else ("%", "mod")
        zero = tirx.const(0, dtype_of(expr))
        divisor = constant_int(expr.b)
        positive = divisor > 0 if divisor is not None else self._writer.loops.proves(expr.b >= zero)
        if positive and not loads(expr.a) and self._writer.loops.proves(expr.a >= zero):
            return f"{operands[0]} {word} {operands[1]}"
        ctype = self._type(node)
        return f"rten_floor{function}(({ctype}){operands[0]}, ({ctype}){operands[1]})"

    def _call(self, node: int, expr: Call, operands: Sequence[str]) -> str:
        name = str(expr.op.name).rsplit(".", 1)[-1]
        match name:
            case "if_then_else":
                return f"{operands[0]} ? {operands[1]} : {operands[2]}"
            case "reinterpret":
                return reinterpret_text(dtype_of(expr.args[0]), dtype_of(expr), operands[0])
            case "call_pure_extern" | "call_extern":
                return self._extern(str(expr.args[0].value), operands[1:])
            case "call_llvm_pure_intrin":
                number = int(expr.args[0].value)
                intrinsic = str(tvm.target.codegen.llvm_get_intrinsic_name(number))
                return self._function(intrinsic, dtype_of(expr), operands[1:])
            case "fabs" | "abs":
                if dtype_of(expr).startswith("float"):
                    return self._function("fabs", dtype_of(expr), operands)
                return f"rten_abs<{self._type(node)}>({operands[0]})"
        if name in BITWISE:
            return f"{operands[0]} {BITWISE[name]} {operands[1]}"
        if name == "bitwise_not":
            return f"~{operands[0]}"
        return self._function(name, dtype_of(expr), operands)

    def _extern(self, symbol: str, operands: Sequence[str]) -> str:
        if symbol == "rten_aot_fail":
            self._writer.fails = True
        return f"{symbol}({', '.join(operands)})"

    def _function(self, name: str, dtype: str, operands: Sequence[str]) -> str:
        symbol = "fabs" if name == "fabs" else FUNCTIONS.get(name)
        if symbol is None or not dtype.startswith("float"):
            raise InternalError(f"no CUDA function for {name} of {dtype}")
        return f"{symbol}{'f' if dtype == 'float32' else ''}({', '.join(operands)})"
