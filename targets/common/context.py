"""What a schedule rule works with: one kernel being turned into loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Stmt

from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Decisions
from rten_aot.targets.common.epilogue import Epilogue
from rten_aot.targets.common.expr import Buffer, i64
from rten_aot.targets.common.loops import Loops, seq
from rten_aot.targets.common.stages import Kernel, Stage
from rten_aot.targets.common.values import Values

SCRATCH = "rten.scratch"
"""Attribute of a scheduled function: how many of its last parameters are scratch buffers."""

READS_ALL = "rten.reads_all"
"""Attribute of a scheduled function that reads its constant operands from end to end."""


class Context:
    """A kernel on its way to loops.

    Rules read operands with ``values.load(buffer, indices)``, make loops with ``loops``, store
    results with ``epilogue(stage).emit(acc, indices)``.
    """

    def __init__(self, kernel: Kernel, machine: Machine, note: Callable[[str], None]) -> None:
        self.kernel = kernel
        self.machine = machine
        self.note = note
        """Takes one line about the schedule that was chosen."""
        self.loops = Loops(kernel.sizes)
        self.values = Values(kernel, self.loops)
        self.done: set[Buffer] = set()
        """Buffers whose stages need no more loops."""
        self.decisions: Decisions | None = None
        """Those for the convolution or matrix product, if the kernel has one."""
        self._scratch: list[Buffer] = []

    def scratch(self, shape: Sequence[Expr | int], dtype: str, name: str) -> Buffer:
        """A new buffer in memory, which becomes a parameter of the scheduled function."""
        buffer = tirx.decl_buffer([i64(e) for e in shape], dtype, name=name)
        self._scratch.append(buffer)
        return buffer

    def storage(self, stage: Stage) -> Buffer:
        """Where the stage's result goes: its own buffer if that is an output, else new scratch."""
        if stage.buffer in self.kernel.outputs:
            return stage.buffer
        shape = [a.extent for a in stage.spatial]
        return self.scratch(shape, stage.dtype, f"{stage.name}_mem")

    def epilogue(self, stage: Stage) -> Epilogue:
        """The epilogue of ``stage``.

        Use one for each stage, and call ``finish(epilogue)`` when the loops are made.
        """
        return Epilogue(self.kernel, stage, self.values, self.loops, self.storage)

    def store(self, stage: Stage, storage: Buffer) -> None:
        """Note that a spatial stage is computed into ``storage``; later stages load it there."""
        self.values.put_in_memory(stage.buffer, storage)
        self.done.add(stage.buffer)

    def finish(self, epilogue: Epilogue) -> None:
        """Note that the epilogue's stages are computed; later stages load its results."""
        epilogue.finish()
        self.done.update(s.buffer for s in epilogue.absorbed)

    def decide(self, decisions: Decisions) -> None:
        """Note what was chosen for the kernel's convolution or matrix product."""
        self.decisions = decisions
        self.note(str(decisions))

    def materialise(self, buffer: Buffer) -> Stmt:
        """Loops that compute a producer stage into memory, from where it is loaded afterwards.

        They do nothing for what is in memory already.
        """
        from rten_aot.targets.common.elementwise import schedule_spatial

        stage = self.kernel.producer(buffer)
        if stage is None or self.values.in_memory(buffer):
            return seq()
        return schedule_spatial(self, [stage])

    def function(self, body: Stmt) -> tirx.PrimFunc:
        """The scheduled function: the old parameters, then the scratch buffers."""
        func = self.kernel.func
        result = tirx.PrimFunc([*self.kernel.params, *self._scratch], body, func.ret_type)
        for key, value in (func.attrs or {}).items():
            result = result.with_attr(key, value)
        if any(stage.anchor is not None for stage in self.kernel.stages):
            result = result.with_attr(READS_ALL, 1)
        return result.with_attr(SCRATCH, len(self._scratch))
