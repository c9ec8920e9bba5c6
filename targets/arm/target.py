"""Tables of Arm machines.

Cache sizes are those of Arm's technical reference manuals (https://developer.arm.com), for the
level 2 cache one core's share of the usual configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

BASELINE = "generic"
"""ARMv8-A with NEON, which every aarch64 Linux has."""

NAMED: Mapping[str, tuple[str, str]] = {
    "aarch64": ("generic", "any 64-bit Arm CPU"),
    "cortex-a53": ("cortex-a53", "Raspberry Pi 3, many boards"),
    "cortex-a55": ("cortex-a55", "RK3566, RK3568"),
    "cortex-a72": ("cortex-a72", "Raspberry Pi 4, AWS Graviton1"),
    "cortex-a76": ("cortex-a76", "Raspberry Pi 5, RK3588"),
    "cortex-a78": ("cortex-a78", "phones and Jetson Orin (Cortex-A78AE)"),
    "neoverse-n1": ("neoverse-n1", "AWS Graviton2, Ampere Altra"),
    "neoverse-v1": ("neoverse-v1", "AWS Graviton3"),
    "neoverse-v2": ("neoverse-v2", "AWS Graviton4, NVIDIA Grace"),
}
"""Machines that can be asked for by name alone: LLVM's name of the CPU, and where it is found."""

ARMV7: Mapping[str, tuple[str, str]] = {
    "armv7": ("cortex-a7", "32-bit Arm with NEON and VFPv4, hard-float"),
}
"""The same for 32-bit systems."""

CACHES: Mapping[str, tuple[int, int]] = {
    "generic": (32, 128),
    "cortex-a7": (32, 128),
    "cortex-a53": (32, 128),
    "cortex-a55": (32, 128),
    "cortex-a72": (32, 256),
    "cortex-a76": (64, 512),
    "cortex-a78": (64, 512),
    "neoverse-n1": (64, 1024),
    "neoverse-n2": (64, 1024),
    "neoverse-v1": (64, 1024),
    "neoverse-v2": (64, 2048),
}
"""Level 1 data and level 2 caches of one core in KiB, by LLVM's name of the CPU."""

FEATURES: Mapping[str, str] = {
    "aes": "aes",
    "bf16": "bf16",
    "complxnum": "fcma",
    "crc": "crc32",
    "dotprod": "asimddp",
    "fp16fml": "asimdfhm",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "jsconv": "jscvt",
    "lse": "atomics",
    "rcpc": "lrcpc",
    "rdm": "asimdrdm",
    "sha2": "sha2",
    "sha3": "sha3",
    "sm4": "sm4",
    "sve": "sve",
    "sve2": "sve2",
}
"""Features that the code generator may use by itself and that not every aarch64 CPU has: LLVM's
name to the flag in Linux's /proc/cpuinfo."""

ARMV7_FEATURES: Mapping[str, str] = {
    "d32": "vfpd32",
    "hwdiv-arm": "idiva",
    "hwdiv": "idivt",
    "neon": "neon",
    "vfp3": "vfpv3",
    "vfp4": "vfpv4",
}
"""The same for 32-bit Arm."""

NEON = (128, 32)
"""Bits of a vector and number of vector registers on aarch64."""
ARMV7_NEON = (128, 16)
