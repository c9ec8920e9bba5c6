"""What a machine is to the schedules: vector width, registers, caches, features.

The tables of known machines lie in ``target.py`` of a folder for each kind of CPU. Here is also
what code generation takes from this layer besides: the work of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.ir import Expr
from tvm.target import Target

from rten_aot.targets.common.expr import element_bits


@dataclass(frozen=True)
class Machine:
    """A CPU that code is generated for. Fields are plain data: equal machines give equal code."""

    name: str
    """For messages: the CPU and its extra attributes, e.g. ``x86-64-v3 +avxvnni``."""
    triple: str
    """LLVM target triple."""
    cpu: str
    """LLVM's name of the CPU (``-mcpu``)."""
    attrs: tuple[str, ...] = ()
    """LLVM features on top of ``cpu``, each ``+name`` or ``-name`` (``-mattr``)."""
    features: tuple[str, ...] = ()
    """Features that code for this machine may use and that some CPUs of the architecture lack
    (LLVM's names, sorted): the run-time library checks them before it runs anything."""
    vector_bits: int = 128
    vector_registers: int = 16
    l1_bytes: int = 32 * 1024
    """Level-1 data cache of one core."""
    l2_bytes: int = 256 * 1024
    """Level-2 cache, or one core's share of it."""
    fma: bool = False
    """Whether a multiplication and an addition are one instruction on vectors."""
    halves: bool = False
    """Whether there are instructions for float16 to float32, which LLVM uses by itself."""
    in_order: bool = False
    """Whether instructions start one after the other, so that code has to hide how long loads take:
    products load the factors of several terms at once, and multiply by lanes of the left ones."""
    groups_loads: bool = False
    """Whether a product's loads stay together, ahead of the multiplications, for LLVM tends to
    spread them. Takes an AArch64 machine."""
    scheduled_as: str | None = None
    """LLVM's name of the CPU for which instructions are put in order, where not ``cpu`` itself."""
    abi: str | None = None
    """LLVM's ABI name or float ABI where the triple does not settle it (``hard``, ``lp64d``)."""

    @property
    def arch(self) -> str:
        """The first part of the triple, e.g. ``x86_64``."""
        return self.triple.split("-", 1)[0]

    def lanes(self, dtype: str) -> int:
        """How many elements of ``dtype`` one vector register holds (at least 1)."""
        return max(1, self.vector_bits // element_bits(dtype))

    def accumulator_rows(self, vectors_per_row: int) -> int:
        """The most rows of a register tile of ``vectors_per_row`` vectors that does not spill.

        The tile shares the registers with its factors.
        """
        left, right = self.factor_vectors(vectors_per_row)
        return max(1, (self.vector_registers - right) // (vectors_per_row + left))

    def factor_vectors(self, vectors_per_row: int) -> tuple[int, int]:
        """Vectors of factors beside a register tile: those of each row, and those for all rows.

        They are one row of the right operand and one broadcast value, or as many rows of it as a
        vector of left factors has lanes.
        """
        if self.terms > 1:
            return 1, self.terms * vectors_per_row
        return 0, vectors_per_row + 1

    @property
    def terms(self) -> int:
        """Terms of a sum that a register tile takes at once."""
        return self.lanes("float32") if self.in_order else 1

    @property
    def parallel_products(self) -> int:
        """Multiplications of a sum of products from which on several threads pay.

        About four microseconds of one core: to wake a thread takes two or three times that long, to
        give work to one that waits for it a quarter.
        """
        return 1024 * self.vector_bits

    @property
    def parallel_operations(self) -> int:
        """The same for operations of other kernels, which wait for memory for the most part."""
        return 256 * self.vector_bits

    def has(self, feature: str) -> bool:
        """Whether code may use ``feature`` (LLVM's name)."""
        return feature in self.features

    def runs_here(self) -> bool:
        """Whether this computer can run code for the machine."""
        from rten_aot.targets.machines import runs_here

        return runs_here(self)

    def tvm_target(self) -> Target:
        """The TVM target that generates code for this machine."""
        config: dict[str, object] = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.cpu}
        attrs = list(self.attrs)
        if self.scheduled_as is not None:
            config["mcpu"] = self.scheduled_as
            attrs += [f"+{feature}" for feature in self.features]
        if attrs:
            config["mattr"] = attrs
        if self.abi == "hard":
            config["mfloat-abi"] = "hard"
        elif self.abi is not None:
            config["mabi"] = self.abi
        if self.arch == "wasm32":
            config["vector-width"] = self.vector_bits  # which TVM does not know by itself
        return Target(config)


@dataclass(frozen=True)
class Work:
    """What one call of a kernel has to do, in terms of sizes."""

    flops: Expr
    """Two for each term of a sum of products, as in convolutions, matrix products, recurrences."""
    bytes: Expr
    """Those of every operand and result, once; of an operand no more than what is loaded."""
