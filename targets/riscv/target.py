"""Tables of RISC-V machines: 64 bits, with and without the vector extension.

Cache sizes are the smallest of the usual Linux boards: SiFive U74 (JH7110), SpacemiT X60 (K1).
"""

from __future__ import annotations

from rten_aot.targets.architecture import Architecture, Named, VectorUnit

_PROFILES = "https://github.com/riscv/riscv-profiles"

_NAMED = {
    "riscv64": Named("any RISC-V Linux board (RV64GC)", "generic-rv64", _PROFILES),
    "riscv64v": Named(
        "RISC-V with vectors (RVV 1.0) of 128 bits or more: SpacemiT K1 and others",
        "generic-rv64",
        _PROFILES,
        attrs=("+v",),
    ),
}


def _vector_unit(features: frozenset[str]) -> VectorUnit:
    if "v" in features:
        # Registers are at least so long (Zvl128b, which V implies); longer ones are used in part.
        return VectorUnit(128, 32, fma=True)
    # Vectors are taken apart: two lanes, so that the 32 scalar registers count as 16.
    return VectorUnit(64, 16, fma=True)


RISCV64 = Architecture(
    name="riscv64",
    first="riscv64",
    triple="riscv64-unknown-linux-gnu",
    baseline="generic-rv64",
    named=_NAMED,
    caches={"generic-rv64": (32, 128)},
    features={"v": "v"},
    needed=("64bit", "d"),
    vector_unit=_vector_unit,
    # What Linux distributions are built for (RV64GC), but LLVM's generic CPU is without.
    attrs=("+m", "+a", "+f", "+d", "+c"),
    levels=("generic-rv64",),
    abi="lp64d",
)
