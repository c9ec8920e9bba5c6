"""The systems that libraries are made for, and what the linker has to know of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rten_aot.codegen import elf
from rten_aot.errors import LinkError
from rten_aot.options import Libc

WASM: Literal["wasm32"] = "wasm32"

Machine: TypeAlias = elf.Machine | Literal["wasm32"]


@dataclass(frozen=True)
class Platform:
    """An instruction set and a C library."""

    machine: Machine
    libc: Libc | None
    """None: the module has its own."""
    zig: tuple[str, ...]
    """Options that make zig build for it."""


# zig's name of the target, with the oldest glibc that it is built for, and further options. Without
# -rtlib=none zig builds its own compiler-rt, which takes seconds once; ARM needs its 64-bit
# division, RISC-V its half-precision conversions.
_PLATFORMS = (
    Platform("x86_64", "glibc", ("-target", "x86_64-linux-gnu.2.17", "-rtlib=none")),
    Platform("aarch64", "glibc", ("-target", "aarch64-linux-gnu.2.17", "-rtlib=none")),
    Platform("arm", "glibc", ("-target", "arm-linux-gnueabihf.2.17")),
    Platform("riscv64", "glibc", ("-target", "riscv64-linux-gnu.2.27")),
    Platform("x86_64", "musl", ("-target", "x86_64-linux-musl", "-rtlib=none")),
    Platform("aarch64", "musl", ("-target", "aarch64-linux-musl", "-rtlib=none")),
    Platform("arm", "musl", ("-target", "arm-linux-musleabihf")),
    Platform("riscv64", "musl", ("-target", "riscv64-linux-musl")),
    Platform(WASM, None, ("-target", "wasm32-wasi")),
)


def platform_of(triple: str) -> Platform:
    """The platform of an LLVM triple such as ``aarch64-unknown-linux-gnu``.

    Raises:
        LinkError: libraries for this triple cannot be linked.
    """
    for platform in _PLATFORMS:
        if re.fullmatch(_pattern(platform), triple):
            return platform
    raise LinkError(
        f'linking for "{triple}" is not supported; supported: x86_64, aarch64 and riscv64 with '
        "-linux-gnu or -linux-musl, armv7 with -linux-gnueabihf or -linux-musleabihf, wasm32-wasi"
    )


def _pattern(platform: Platform) -> str:
    if platform.machine == WASM:
        return r"wasm32(-unknown)?-wasi"
    libc = "gnu" if platform.libc == "glibc" else "musl"
    if platform.machine == "arm":
        return rf"arm(v7\w*)?-(\w+-)?linux-{libc}eabihf"
    return rf"{platform.machine}-(\w+-)?linux-{libc}"
