"""A Jetson board under qemu: an aarch64 CPU, and a GPU by the emulator, built for that CPU."""

from __future__ import annotations

from pathlib import Path

from tests.cuda import emulator
from tests.edge.emulation import Emulated


class _Jetson(Emulated):
    def environment(self, folder: Path) -> dict[str, str]:
        own, gpu = super().environment(folder), emulator.environment("aarch64")
        paths = f"{own['LD_LIBRARY_PATH']}:{gpu['LD_LIBRARY_PATH']}"
        return {**own, **gpu, "LD_LIBRARY_PATH": paths, "RTEN_EMULATOR_CAPABILITY": "87"}


JETSON = _Jetson(
    "jetson-orin",
    "jetson-orin-gpu",
    "aarch64-linux-gnu.2.17",
    "qemu-aarch64-static",
    "cortex-a76",
    "aarch64-linux-gnu",
)
