"""From Relax functions to the host program: one list of steps, with a storage for every value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import tvm
from tvm import relax, tirx

from rten_aot.codegen.frames import Frame, Place, Weights, in_order, match, roots
from rten_aot.codegen.program import (
    Allocate,
    Append,
    Copy,
    HandOut,
    If,
    Input,
    Keep,
    Kept,
    Kernel,
    KernelCall,
    Loop,
    Measure,
    Operands,
    Output,
    Planned,
    Program,
    Publish,
    Recall,
    Require,
    SizeCheck,
    SourceFunction,
    Step,
    Storage,
    kernel_sizes,
    read_whole,
)
from rten_aot.codegen.sizes import (
    Factors,
    byte_factors,
    byte_size,
    free_sizes,
    product,
    row_factors,
    substituted,
    type_sizes,
)
from rten_aot.dialect.control import COND, LOOP
from rten_aot.dialect.functions import result_of, result_types
from rten_aot.dialect.origins import nodes_of
from rten_aot.dialect.registry import attrs_of
from rten_aot.errors import InternalError
from rten_aot.targets.base import Work


def build_program(
    functions: Mapping[str, SourceFunction], kernels: Mapping[str, Kernel], *, of_gpu: bool = False
) -> Program:
    """The host program of ``functions["main"]`` with the branches that it calls.

    ``kernels`` are by the names that ``call_tir`` uses. In a program for a GPU, ``of_gpu``, calls
    say what their pointers are.
    """
    return _Linearizer(functions, kernels, of_gpu=of_gpu).build()


class _Linearizer:
    def __init__(
        self,
        functions: Mapping[str, SourceFunction],
        kernels: Mapping[str, Kernel],
        *,
        of_gpu: bool,
    ) -> None:
        self._of_gpu = of_gpu
        self._functions = functions
        self._kernels = kernels
        self._clock = itertools.count()
        self._buffers: list[Planned] = []
        self._weights = Weights()
        self._sizes: list[tirx.Var] = []
        self._slots = 0
        self._checks: list[SizeCheck] = []
        self._outer: dict[tirx.Var, tirx.Expr] = {}
        """Sizes of branches in terms of the main function's."""

    def build(self) -> Program:
        main = self._functions["main"]
        params = list(main.function.params)
        dims = [d for p in params for d in p.ty.shape.values if not isinstance(d, tirx.IntImm)]
        self._sizes = list(dict.fromkeys(dims))
        self._slots = len(self._sizes)
        known = set(self._sizes)
        early = [c for c in main.checks if free_sizes(c.condition) <= known]
        late = [c for c in main.checks if not free_sizes(c.condition) <= known]
        self._checks = list(early)
        frame = Frame({p: Input(i) for i, p in enumerate(params)}, set(known), late)
        results = self._body(main, frame)
        types = result_types(main.function)[: len(results)]
        dynamic_dims = self._finish(frame, results, types)
        return Program(
            tuple(frame.steps),
            roots(self._buffers),
            self._weights.chunks,
            self._weights.bytes,
            [p.ty for p in params],
            types,
            self._sizes,
            self._slots,
            self._checks,
            len(early),
            dynamic_dims,
        )

    # -- values --------------------------------------------------------------------------------

    def _body(self, source: SourceFunction, frame: Frame) -> list[Storage]:
        """Append the function's steps; returns the storages of its results."""
        function = source.function
        results = result_of(function)
        split = len(results) - len(source.measured)
        counts = [c for c in zip(results[split:], source.measured, strict=True) if c[1]]
        for tensor, sizes in counts:
            if not isinstance(tensor, tvm.ir.Var):
                self._measure(tensor, sizes, frame)
        self._test_checks(frame)
        for var, value in in_order(function, frame):
            frame.places[var] = self._place(value, frame)
            for tensor, sizes in counts:
                if isinstance(tensor, tvm.ir.Var) and tensor.same_as(var):
                    self._measure(tensor, sizes, frame)
            self._test_checks(frame)
        if frame.checks:
            raise InternalError(f"sizes of a check are never defined: {frame.checks[0].message}")
        return [self._single(value, frame) for value in results[:split]]

    def _measure(self, tensor: relax.Expr, sizes: Sequence[tirx.Var], frame: Frame) -> None:
        storage = self._single(tensor, frame)
        self._touch(storage, next(self._clock))
        frame.steps.append(Measure(tuple(sizes), storage))
        frame.defined |= set(sizes)

    def _test_checks(self, frame: Frame) -> None:
        for check in [c for c in frame.checks if free_sizes(c.condition) <= frame.defined]:
            frame.checks.remove(check)
            frame.steps.append(Require(self._resolved(check.condition), len(self._checks)))
            self._checks.append(check)

    def _place(self, value: relax.Expr, frame: Frame) -> Place:
        if isinstance(value, tvm.ir.GenericConst):
            return self._weights.place(value)
        if isinstance(value, tvm.ir.Var):
            return frame.places[value]
        if isinstance(value, tvm.ir.Tuple):
            return [self._single(f, frame) for f in value.fields]
        if isinstance(value, relax.TupleGetItem):
            group = frame.places[value.tuple_value]
            assert isinstance(group, list)
            element: Storage = group[value.index]
            return element
        name = getattr(value.op, "name", "") if isinstance(value, tvm.ir.Call) else ""
        if name == "relax.reshape":
            return self._single(value.args[0], frame)
        if name == "relax.call_tir":
            return self._kernel(value, frame)
        if name == COND:
            return self._cond(value, frame)
        if name == LOOP:
            return self._loop(value, frame)
        raise InternalError(f"the host program cannot do {name or type(value).__name__}")

    def _single(self, value: relax.Expr, frame: Frame) -> Storage:
        place = self._place(value, frame)
        if isinstance(place, list):
            raise InternalError("a group of tensors is used as one tensor")
        return place

    # -- steps ---------------------------------------------------------------------------------

    def _kernel(self, call: relax.Call, frame: Frame) -> Place:
        kernel = self._kernels[call.args[0].name_hint]
        grouped = isinstance(call.args[1], tvm.ir.Tuple)
        operands = list(call.args[1].fields) if grouped else [call.args[1]]
        several = isinstance(call.ty, relax.TupleType)
        results = list(call.ty.fields) if several else [call.ty]
        params = list(kernel.function.params)
        actual: dict[tirx.Var, tirx.Expr] = {}
        pointers: list[Storage] = []
        now = next(self._clock)
        for param, operand in zip(params, operands, strict=False):
            if isinstance(param.ty, tirx.BufferType):
                match(param, operand.ty, actual)
                pointers.append(self._single(operand, frame))
            else:
                actual[param] = operand
        for param, ty in zip(params[len(operands) :], results, strict=False):
            match(param, ty, actual)
            pointers.append(self._new(byte_factors(str(ty.dtype), ty.shape.values), now, frame))
        for param in params[len(operands) + len(results) :]:
            shape = [substituted(dim, actual) for dim in param.ty.shape]
            pointers.append(self._new(byte_factors(str(param.ty.dtype), shape), now, frame))
        for storage in pointers:
            self._touch(storage, now)
        sizes = tuple(self._resolved(actual[v]) for v in kernel_sizes(kernel.function))
        work = kernel.work and Work(
            self._resolved(substituted(kernel.work.flops, actual)),
            self._resolved(substituted(kernel.work.bytes, actual)),
        )
        step = KernelCall(
            kernel.name,
            tuple(pointers),
            sizes,
            nodes_of(call),
            work,
            read_whole(kernel, pointers),
            self._operands(kernel, actual, len(results)),
        )
        frame.steps.append(step)
        end = len(pointers) - kernel.scratch
        outputs = pointers[end - len(results) : end]
        return outputs if several else outputs[0]

    def _operands(
        self, kernel: Kernel, actual: Mapping[tirx.Var, tirx.Expr], results: int
    ) -> Operands | None:
        if not self._of_gpu:
            return None
        buffers = [p for p in kernel.function.params if isinstance(p.ty, tirx.BufferType)]
        sizes = [
            product(byte_factors(str(b.ty.dtype), [substituted(d, actual) for d in b.ty.shape]))
            for b in buffers
        ]
        inputs = len(buffers) - results - kernel.scratch
        resolved = tuple(map(self._resolved, sizes))
        return Operands(inputs, kernel.scratch, resolved, on_host=kernel.launches is None)

    def _cond(self, call: relax.Call, frame: Frame) -> list[Storage]:
        attrs = attrs_of(call)
        condition = self._single(call.args[0], frame)
        captures = [self._single(a, frame) for a in call.args[1:-1]]
        self._touch(condition, next(self._clock))
        types = list(call.ty.fields)
        new = {
            v: self._slot()
            for ty in types
            for v in sorted(type_sizes(ty) - frame.defined, key=lambda v: str(v.name))
        }
        results: list[Storage] = []
        for ty in types:
            if type_sizes(ty) <= frame.defined:
                factors = byte_factors(str(ty.dtype), ty.shape.values)
                results.append(self._new(factors, next(self._clock), frame))
            else:
                results.append(Kept(self._slot()))
        arms = [
            self._arm(self._functions[attrs[side]], captures, call.args[-1], types, results, new)
            for side in ("then", "otherwise")
        ]
        dtype = str(call.args[0].ty.dtype)
        frame.steps.append(If(condition, dtype, tuple(arms[0]), tuple(arms[1])))
        for storage in results:
            self._touch(storage, next(self._clock))
        frame.steps += [Recall(var, slot) for var, slot in new.items()]
        frame.defined |= set(new)
        return results

    def _loop(self, call: relax.Call, frame: Frame) -> list[Storage]:
        attrs, (*operands, limit, sizes) = attrs_of(call), call.args
        source, split = self._functions[attrs["body"]], attrs["carried"] + 1
        types = [operands[0].ty, *call.ty.fields]
        # What changes from one iteration to the next lies in buffers of the loop's own.
        state = [self._copied(x, frame) for x in operands[:split]]
        captures = [self._single(x, frame) for x in operands[split:]]
        number = self._new(byte_factors("int32", []), next(self._clock), frame)
        most = self._resolved(limit.values[0])
        scans = [self._new((most, *row_factors(ty)), number.first, frame) for ty in types[split:]]
        body = self._frame(source, [number, *state, *captures], sizes)
        results = self._body(source, body)
        slot = self._slot()
        for scan, value, ty in zip(scans, results[split:], types[split:], strict=True):
            size = product(tuple(map(self._resolved, row_factors(ty))))
            body.steps.append(Append(scan, value, size, slot))
        self._carry(state, results[:split], types[:split], body)
        for storage in [*results, *state, *captures, *scans, number]:
            self._touch(storage, next(self._clock))
        dtype, steps = str(types[0].dtype), tuple(body.steps)
        frame.steps.append(Loop(slot, most, state[0], dtype, number, steps))
        new = {v for ty in types[split:] for v in type_sizes(ty)} - frame.defined
        frame.steps += [Recall(var, slot) for var in sorted(new, key=lambda v: str(v.name))]
        frame.defined |= new
        return [*state[1:], *scans]

    def _copied(self, value: relax.Expr, frame: Frame) -> Storage:
        source, now = self._single(value, frame), next(self._clock)
        self._touch(source, now)
        copy = self._new(byte_factors(str(value.ty.dtype), value.ty.shape.values), now, frame)
        frame.steps.append(Copy(copy, source, self._resolved(byte_size(value.ty))))
        return copy

    def _carry(
        self,
        state: list[Storage],
        results: list[Storage],
        types: list[relax.TensorType],
        frame: Frame,
    ) -> None:
        """Bring an iteration's results to where the next one finds them."""
        final: list[Copy] = []
        for place, result, ty in zip(state, results, types, strict=True):
            if result is place:
                continue
            size = self._resolved(byte_size(ty))
            source = result
            if any(result is other for other in state):
                # It is overwritten before it can be copied.
                factors = byte_factors(str(ty.dtype), ty.shape.values)
                source = self._new(factors, next(self._clock), frame)
                frame.steps.append(Copy(source, result, size))
                self._touch(source, next(self._clock))
            final.append(Copy(place, source, size))
        for step in final:
            self._touch(step.source, next(self._clock))
        frame.steps += final

    def _frame(
        self, source: SourceFunction, operands: list[Storage], sizes: relax.ShapeExpr
    ) -> Frame:
        """Of a function that is called with these operands and outer sizes."""
        *params, last = source.function.params
        for var, value in zip(last.ty.values, sizes.values, strict=True):
            self._outer[var] = self._resolved(value)
        places: dict[relax.Var, Place] = dict(zip(params, operands, strict=True))
        return Frame(places, set(last.ty.values), list(source.checks))

    def _arm(
        self,
        source: SourceFunction,
        captures: list[Storage],
        sizes: relax.ShapeExpr,
        types: list[relax.TensorType],
        results: list[Storage],
        new: Mapping[tirx.Var, int],
    ) -> list[Step]:
        """The steps of a branch, which end with its results in ``results``."""
        first_own = len(self._buffers)
        frame = self._frame(source, captures, sizes)
        values = self._body(source, frame)
        own = set(map(id, self._buffers[first_own:]))
        inner_types = result_types(source.function)[: len(values)]
        for value, result, ty, outer in zip(values, results, inner_types, types, strict=True):
            for dim, name in zip(ty.shape.values, outer.shape.values, strict=True):
                if name in new:
                    frame.steps.append(Publish(new[name], self._resolved(dim)))
            self._deliver(value, result, ty, frame, is_own=id(value) in own)
        for storage in captures:
            self._touch(storage, next(self._clock))
        return frame.steps

    def _deliver(
        self,
        value: Storage,
        result: Storage,
        ty: relax.TensorType,
        frame: Frame,
        *,
        is_own: bool,
    ) -> None:
        """Bring a branch's value into the If's result: computed there if possible, else copied."""
        now = next(self._clock)
        self._touch(value, now)
        self._touch(result, now)
        if isinstance(result, Kept):
            frame.steps.append(Keep(result.slot, value))
            result.values.append(value)
        elif is_own and isinstance(value, Planned) and value.home is None and not value.dynamic:
            value.home = result
        else:
            frame.steps.append(Copy(result, value, self._resolved(byte_size(ty))))

    def _finish(
        self, frame: Frame, results: list[Storage], types: list[relax.TensorType]
    ) -> dict[int, list[int | None]]:
        """Bring the results into the graph outputs; returns the slots of dynamic shapes."""
        known = set(self._sizes)
        dynamic_dims: dict[int, list[int | None]] = {}
        for index, (storage, ty) in enumerate(zip(results, types, strict=True)):
            self._touch(storage, next(self._clock))
            if not type_sizes(ty) <= known:
                dynamic_dims[index] = self._hand_out(frame, index, storage, ty)
                continue
            root = storage.root() if isinstance(storage, Planned) else storage
            if isinstance(root, Planned) and not root.dynamic:
                root.home = Output(index)
            else:
                frame.steps.append(Copy(Output(index), storage, byte_size(ty)))
        return dynamic_dims

    def _hand_out(
        self, frame: Frame, index: int, storage: Storage, ty: relax.TensorType
    ) -> list[int | None]:
        slots: list[int | None] = []
        for dim in ty.shape.values:
            if isinstance(dim, tirx.IntImm):
                slots.append(None)
            else:
                slots.append(self._slot())
                frame.steps.append(Publish(self._slots - 1, dim))
        frame.steps.append(HandOut(index, storage))
        return slots

    # -- storage -------------------------------------------------------------------------------

    def _new(self, factors: Factors, now: int, frame: Frame) -> Planned:
        factors = tuple(map(self._resolved, factors))
        size = product(factors)
        dynamic = not free_sizes(size) <= set(self._sizes)
        storage = Planned(size, now, now, factors, dynamic)
        if storage.dynamic:
            frame.steps.append(Allocate(storage))
        self._buffers.append(storage)
        return storage

    def _touch(self, storage: Storage, now: int) -> None:
        if isinstance(storage, Planned):
            storage.first = min(storage.first, now)
            storage.last = max(storage.last, now)
        elif isinstance(storage, Kept):
            for value in storage.values:
                self._touch(value, now)

    def _resolved(self, size: tirx.Expr) -> tirx.Expr:
        """The expression in terms of the main function's sizes."""
        return substituted(size, self._outer)

    def _slot(self) -> int:
        self._slots += 1
        return self._slots - 1
