"""The host program as TIR: ``rten_main`` runs the steps, ``rten_prepare`` computes sizes.

The C side of both is described in ``native/rten_aot_internal.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import tirx
from tvm.ir import PointerType, PrimType, Var

from rten_aot.codegen import program as ir
from rten_aot.dialect.failure import Failure, fail
from rten_aot.targets.base import Work

COPY = "copy"
"""What stands for the kernel where data is copied as it is."""

_TOO_LARGE = float(1 << 62)


def host_module(
    program: ir.Program, offsets: Sequence[int] | None, sites: list[Site] | None = None
) -> dict[str, tirx.PrimFunc]:
    """The two host functions by name.

    ``offsets`` are those of the program's buffers, or None if the runtime places the buffers. With
    a list of ``sites`` the steps that do the work are timed, and added to the list.
    """
    return {
        "rten_main": _MainEmitter(program, offsets, sites).function(),
        "rten_prepare": _prepare(program, placed=offsets is None),
    }


@dataclass(frozen=True)
class Site:
    """A step that is timed: the kernel that it calls, and for which nodes of the model."""

    kernel: str
    nodes: tuple[int, ...]
    work: Work


def _pointer(name: str, dtype: str = "uint8") -> tirx.Var:
    return Var(name, PointerType(PrimType(dtype), "global"))


def _at(base: tirx.Expr, offset: tirx.Expr | int) -> tirx.Expr:
    if isinstance(offset, int):
        if offset == 0:
            return base
        offset = tirx.IntImm("int64", offset)
    return tirx.call_intrin("handle", "tirx.handle_add_byte_offset", base, offset)


def _typed(pointer: tirx.Expr, dtype: str) -> tirx.Expr:
    """The address as a pointer to elements of the type."""
    kind = PointerType(PrimType(dtype), "global")
    return tvm.ir.Call(
        tvm.ir.Op.get("tirx.handle_add_byte_offset"),
        [pointer, tirx.IntImm("int64", 0)],
        ret_ty=kind,
    )


def _seq(stmts: list[tirx.Stmt]) -> tirx.Stmt:
    if not stmts:
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(stmts)


def _leave() -> tirx.Stmt:
    return tirx.Return(tirx.IntImm("int32", 0))


def _leave_if_failed() -> tirx.Stmt:
    failed = tirx.call_extern("int32", "rten_aot_failed")
    return tirx.IfThenElse(tirx.NE(failed, tirx.IntImm("int32", 0)), _leave(), None)


def _array(name: str, data: tirx.Var, dtype: str, size: int) -> tuple[tirx.Buffer, tirx.Stmt]:
    buffer = tirx.decl_buffer((tirx.IntImm("int64", max(size, 1)),), dtype, name=name)
    return buffer, tirx.DeclBuffer(buffer, data=data)


def _load(buffer: tirx.Buffer, index: int) -> tirx.Expr:
    return tirx.BufferLoad(buffer, [tirx.IntImm("int64", index)])


def _store(buffer: tirx.Buffer, index: int, value: tirx.Expr) -> tirx.Stmt:
    return tirx.BufferStore(buffer, tirx.Cast("int64", value), [tirx.IntImm("int64", index)])


@dataclass
class _MainEmitter:
    program: ir.Program
    offsets: Sequence[int] | None
    sites: list[Site] | None
    dynamic: dict[int, tirx.Var] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        program = self.program
        self.inputs = [_pointer(f"in{i}") for i in range(len(program.input_types))]
        self.outputs = [_pointer(f"out{i}") for i in range(len(program.output_types))]
        self.syms = _pointer("syms", "int64")
        self.workspace = _pointer("workspace")
        self.offset_table = _pointer("offsets", "int64")
        self.weights = _pointer("weights")
        self.slots, self.declare_slots = _array("slots", self.syms, "int64", program.slots)
        self.places, self.declare_places = _array(
            "places", self.offset_table, "int64", len(program.buffers)
        )

    def function(self) -> tirx.PrimFunc:
        """``rten_main``."""
        body: list[tirx.Stmt] = [self.declare_slots, self.declare_places]
        for slot, var in enumerate(self.program.sizes):
            body.append(tirx.Bind(var, _load(self.slots, slot)))
        body += self._steps(self.program.steps)
        params = [
            *self.inputs,
            *self.outputs,
            self.syms,
            self.workspace,
            self.offset_table,
            self.weights,
        ]
        return tirx.PrimFunc(params, _seq(body))

    def _steps(self, steps: Sequence[ir.Step]) -> list[tirx.Stmt]:
        return [stmt for step in steps for stmt in self._step(step)]

    def _step(self, step: ir.Step) -> list[tirx.Stmt]:
        match step:
            case ir.KernelCall(name, pointers, sizes, nodes, work, read_whole):
                mapped = [self._map(weight, size) for weight, size in read_whole]
                operands = [*(self._address(p) for p in pointers), *sizes]
                call = tirx.Evaluate(tirx.call_extern("int32", name, *operands))
                return [*mapped, *self._timed(call, name, nodes, work)]
            case ir.Copy(target, source, size):
                return self._copy(self._address(target), self._address(source), size)
            case ir.Allocate(storage):
                pointer = _pointer(f"dynamic{len(self.dynamic)}")
                self.dynamic[id(storage)] = pointer
                memory = tirx.call_extern("handle", "rten_aot_alloc", _checked(storage))
                return [tirx.Bind(pointer, _typed(memory, "uint8")), _leave_if_failed()]
            case ir.Publish(slot, value):
                return [_store(self.slots, slot, value)]
            case ir.Recall(var, slot):
                return [tirx.Bind(var, _load(self.slots, slot))]
            case ir.Measure(sizes, storage):
                return self._measure(sizes, storage)
            case ir.Keep(slot, storage):
                place = tirx.const(slot, "int32")
                keep = ("rten_aot_keep", self.syms, place, self._address(storage))
                return [tirx.Evaluate(tirx.call_extern("int32", *keep))]
            case ir.HandOut(output, storage):
                give = tirx.call_extern(
                    "int32",
                    "rten_aot_set_output",
                    tirx.const(output, "int32"),
                    self._address(storage),
                )
                return [tirx.Evaluate(give)]
            case ir.Require(condition, check):
                node = self.program.checks[check].node
                failure = tirx.Evaluate(fail(Failure.CHECK, node, tirx.const(check, "int64")))
                # Kernels after it may rely on the condition.
                return [tirx.IfThenElse(tirx.Not(condition), _seq([failure, _leave()]), None)]
            case ir.If(condition, dtype, then, otherwise):
                return self._if(condition, dtype, then, otherwise)
            case ir.Append(target, source, size, slot):
                place = _at(self._address(target), _load(self.slots, slot) * size)
                return self._copy(place, self._address(source), size)
            case ir.Loop():
                return self._loop(step)
            case ir.Reserve(storage):
                return self._reserve(storage)
            case ir.Upload(target, source, size) | ir.Download(target, source, size):
                way = "upload" if isinstance(step, ir.Upload) else "download"
                copied = (self._address(target), self._address(source), size)
                return [tirx.Evaluate(tirx.call_extern("int32", f"rten_cuda_{way}", *copied))]

    def _reserve(self, storage: ir.HostMemory) -> list[tirx.Stmt]:
        pointer = _pointer(f"host{len(self.dynamic)}")
        self.dynamic[id(storage)] = pointer
        memory = tirx.call_extern("handle", "rten_cuda_host_alloc", storage.size)
        return [tirx.Bind(pointer, _typed(memory, "uint8")), _leave_if_failed()]

    def _map(self, weight: ir.Weight, size: int) -> tirx.Stmt:
        """Have the first run map all pages of a weight at once, not one fault after another."""
        call = tirx.call_extern(
            "int32", "rten_aot_map", self._address(weight), tirx.const(size, "int64")
        )
        return tirx.Evaluate(call)

    def _measure(self, sizes: Sequence[tirx.Var], storage: ir.Storage) -> list[tirx.Stmt]:
        self.count += 1
        pointer = _pointer(f"counts{self.count}", "int64")
        buffer, declare = _array(f"measured{self.count}", pointer, "int64", len(sizes))
        return [
            # A run that has failed may have computed anything, which must not be used as sizes.
            _leave_if_failed(),
            tirx.Bind(pointer, _typed(self._address(storage), "int64")),
            declare,
            *(tirx.Bind(size, _load(buffer, i)) for i, size in enumerate(sizes)),
        ]

    def _if(
        self,
        condition: ir.Storage,
        dtype: str,
        then: Sequence[ir.Step],
        otherwise: Sequence[ir.Step],
    ) -> list[tirx.Stmt]:
        self.count += 1
        pointer = _pointer(f"condition{self.count}", dtype)
        buffer, declare = _array(f"flag{self.count}", pointer, dtype, 1)
        truth = tirx.NE(_load(buffer, 0), tirx.const(0, dtype))
        return [
            tirx.Bind(pointer, _typed(self._address(condition), dtype)),
            declare,
            tirx.IfThenElse(truth, _seq(self._steps(then)), _seq(self._steps(otherwise))),
        ]

    def _loop(self, step: ir.Loop) -> list[tirx.Stmt]:
        self.count += 1
        flag_at, number_at = (_pointer(f"{n}{self.count}", "int32") for n in ("go_on", "number"))
        flag_at = _pointer(f"go_on{self.count}", step.dtype)
        flag, declare_flag = _array(f"flag{self.count}", flag_at, step.dtype, 1)
        number, declare_number = _array(f"iteration{self.count}", number_at, "int32", 1)
        done = _load(self.slots, step.slot)
        again = tirx.And(done < step.limit, tirx.NE(_load(flag, 0), tirx.const(0, step.dtype)))
        count = tirx.BufferStore(number, tirx.Cast("int32", done), [tirx.IntImm("int64", 0)])
        after = _store(self.slots, step.slot, done + tirx.const(1, "int64"))
        return [
            tirx.Bind(flag_at, _typed(self._address(step.condition), step.dtype)),
            tirx.Bind(number_at, _typed(self._address(step.number), "int32")),
            declare_flag,
            declare_number,
            _store(self.slots, step.slot, tirx.const(0, "int64")),
            # A body that has failed may never come to an end.
            tirx.While(again, _seq([count, *self._steps(step.body), after, _leave_if_failed()])),
        ]

    def _copy(self, target: tirx.Expr, source: tirx.Expr, size: tirx.Expr) -> list[tirx.Stmt]:
        copy = tirx.Evaluate(tirx.call_extern("int32", "rten_aot_copy", target, source, size))
        twice = size * tirx.const(2, "int64")
        return self._timed(copy, COPY, (), Work(tirx.const(0, "int64"), twice))

    def _timed(
        self, stmt: tirx.Stmt, kernel: str, nodes: tuple[int, ...], work: Work | None
    ) -> list[tirx.Stmt]:
        """The statement between two readings of the clock, if steps are to be timed."""
        if self.sites is None:
            return [stmt]
        assert work is not None, kernel
        step = tirx.const(len(self.sites), "int32")
        self.sites.append(Site(kernel, nodes, work))
        begin = tirx.call_extern("int32", "rten_aot_begin_step")
        end = tirx.call_extern("int32", "rten_aot_end_step", step, work.flops, work.bytes)
        return [tirx.Evaluate(begin), stmt, tirx.Evaluate(end)]

    def _address(self, storage: ir.Storage) -> tirx.Expr:
        match storage:
            case ir.Input(index):
                return self.inputs[index]
            case ir.Output(index):
                return self.outputs[index]
            case ir.Weight(offset):
                return _at(self.weights, offset)
            case ir.Kept(slot):
                place = tirx.const(slot, "int32")
                return tirx.call_extern("handle", "rten_aot_kept", self.syms, place)
            case ir.HostMemory():
                return self.dynamic[id(storage)]
            case ir.HostWeight(offset):
                return _at(tirx.call_extern("handle", "rten_cuda_host_weights"), offset)
            case ir.Planned() if storage.home is not None:
                return self._address(storage.home)
            case ir.Planned() if storage.dynamic:
                return self.dynamic[id(storage)]
            case ir.Planned(index=index) if self.offsets is not None:
                return _at(self.workspace, self.offsets[index])
            case ir.Planned(index=index):
                return _at(self.workspace, _load(self.places, index))
        raise AssertionError(storage)


def _prepare(program: ir.Program, *, placed: bool) -> tirx.PrimFunc:
    """Sizes of buffers and of outputs, and 1 + the index of the first check that fails, or 0.

    ``placed``: whether the runtime places the buffers.
    """
    names = ("syms", "sizes", "out_dims", "failed_check")
    syms, sizes, dims, failed = (_pointer(n, "int64") for n in names)
    outputs = [d for ty in program.output_types for d in ty.shape.values]
    slots, declare_slots = _array("slots", syms, "int64", program.slots)
    bytes_, declare_bytes = _array("bytes", sizes, "int64", len(program.buffers))
    shapes, declare_shapes = _array("shapes", dims, "int64", len(outputs))
    answer, declare_answer = _array("answer", failed, "int64", 1)
    body: list[tirx.Stmt] = [declare_slots, declare_bytes, declare_shapes, declare_answer]
    for slot, var in enumerate(program.sizes):
        body.append(tirx.Bind(var, _load(slots, slot)))
    # Of buffers that are placed at compile time the runtime knows nothing.
    for buffer in program.buffers if placed else ():
        body.append(_store(bytes_, buffer.index, _checked(buffer)))
    known = set(program.sizes)
    for index, dim in enumerate(outputs):
        if set(tirx.analysis.undefined_vars(dim)) <= known:
            body.append(_store(shapes, index, dim))
    verdict: tirx.Expr = tirx.const(0, "int64")
    for index in reversed(range(program.early_checks)):
        held = program.checks[index].condition
        verdict = tirx.Select(held, verdict, tirx.const(index + 1, "int64"))
    body.append(_store(answer, 0, verdict))
    return tirx.PrimFunc([syms, sizes, dims, failed], tirx.SeqStmt(body))


def _checked(buffer: ir.Planned) -> tirx.Expr:
    """The size in bytes, -1 if it does not fit an int64."""
    if isinstance(buffer.size, tirx.IntImm):
        return buffer.size
    estimate: tirx.Expr = tirx.const(1.0, "float64")
    for factor in buffer.factors:
        estimate = estimate * tirx.Cast("float64", factor)
    fits = estimate < tirx.const(_TOO_LARGE, "float64")
    return tirx.Select(fits, buffer.size, tirx.const(-1, "int64"))
