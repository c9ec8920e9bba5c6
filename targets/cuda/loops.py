"""Kernels that are loops already, and say which of them blocks and threads share."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr, Range
from tvm.sym import Analyzer
from tvm.tirx import Stmt

from rten_aot.targets.common.expr import Buffer, constant_int, i64
from rten_aot.targets.common.loops import Loops, size_vars
from rten_aot.targets.common.stmts import rewrite_stmt
from rten_aot.targets.cuda.kernel import Launch, grid, launch
from rten_aot.targets.cuda.text import Indices, Writer
from rten_aot.targets.cuda.words import c_type

# The names are those of rten_aot/dialect/gpu_loops.py.
_BLOCKS = "rten.blocks"
_THREADS = "rten.threads"
_WARP = 32
_MOST_THREADS = 512


def schedule_loops(func: tirx.PrimFunc) -> Launch | None:
    """The kernel of a function without blocks; None if it does not say who shares its loops."""
    outer = func.body
    while isinstance(outer, tirx.SeqStmt) and len(outer.seq) == 1:
        outer = outer.seq[0]
    if not isinstance(outer, tirx.For) or _BLOCKS not in outer.annotations:
        return None
    buffers = [p for p in func.params if isinstance(p.ty, tirx.BufferType)]
    loops = Loops(list(dict.fromkeys(size_vars(buffers))))
    writer = Writer(loops, Indices("long long"))
    printer = _Printer(writer)
    printer.bind(outer.loop_var, "blockIdx.x", outer.extent)
    printer.stmt(outer.body)
    return launch(writer, grid(outer.extent), _threads(outer.body))


def _threads(body: Stmt) -> int:
    """Threads for the longest loop that they share."""
    longest = _WARP

    def visit(node: Stmt) -> None:
        nonlocal longest
        if isinstance(node, tirx.For) and _THREADS in node.annotations:
            longest = max(longest, constant_int(node.extent) or _MOST_THREADS)

    rewrite_stmt(body, lambda e: e, visit)
    return min(-(-longest // _WARP) * _WARP, _MOST_THREADS)


class _Printer:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def bind(self, var: tirx.Var, text: str, extent: Expr) -> None:
        """Declare an index with this value."""
        w = self._writer
        name = w.fresh("i")
        w.add(f"const {w.index} {name} = {text};")
        w.name(var, name)
        w.loops.analyzer.bind(var, Range(i64(0), extent))

    def stmt(self, node: Stmt) -> None:
        w = self._writer
        match node:
            case tirx.SeqStmt():
                for part in node.seq:
                    self.stmt(part)
            case tirx.For():
                self._for(node)
            case tirx.IfThenElse():
                (condition,) = w.values([node.condition])
                w.add(f"if ({condition}) {{")
                self.stmt(node.then_case)
                if node.else_case is not None:
                    w.add("} else {")
                    self.stmt(node.else_case)
                w.add("}")
            case tirx.BufferStore():
                (value,) = w.values([node.value])
                w.store(node.buffer, list(node.indices), value)
            case tirx.Bind():
                (value,) = w.values([node.value])
                name = w.fresh("b")
                w.add(f"const {c_type(str(node.var.ty.dtype))} {name} = {value};")
                w.hold(node.var, name)
            case tirx.AllocBuffer():
                self._allocate(node.buffer)
            case tirx.Evaluate():
                if not isinstance(node.value, tirx.IntImm):
                    (call,) = w.values([node.value])
                    w.add(f"{call};")
            case _:
                raise NotImplementedError(f"statement {type(node).__name__}")

    def _for(self, node: tirx.For) -> None:
        w = self._writer
        (extent,) = w.values([node.extent])
        name = w.fresh("i")
        w.name(node.loop_var, name)
        w.loops.analyzer.bind(node.loop_var, Range(node.min, node.extent))
        first, step = ("threadIdx.x", "blockDim.x") if _THREADS in node.annotations else ("0", "1")
        head = f"for ({w.index} {name} = {first}; {name} < {extent}; {name} += {step}) {{"
        w.add(head)
        self.stmt(node.body)
        w.add("}")

    def _allocate(self, buffer: Buffer) -> None:
        """Declare a local array."""
        w = self._writer
        count = 1
        for extent in buffer.ty.shape:
            count *= constant_int(Analyzer().simplify(extent)) or 1
        name = w.fresh("own")
        w.add(f"{c_type(str(buffer.ty.dtype))} {name}[{count}];")
        w.local(buffer, name)
