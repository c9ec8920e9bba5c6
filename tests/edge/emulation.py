"""Machines that this one is not, and how libraries for them are run here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rten_aot.cli.artifact import read_metadata
from tests.codegen.nets import build_program
from tests.edge.wasm_model import WasmModel
from tests.support.model_feeds import Array
from tests.support.raw_run import PROGRAM, pack, unpack


class RunFailedError(Exception):
    """What the program or the model said."""


class EmulatorFaultError(Exception):
    """The emulator itself failed."""


# Before its version 8, qemu cannot translate the conversion of vectors of floats to integers.
_FAULT = "decode_save_opc: Assertion"


@dataclass(frozen=True)
class Emulated:
    """A Linux machine under qemu."""

    id: str
    target: str
    """For the compiler."""
    zig: str
    """The target that C programs are built for."""
    qemu: str
    cpu: str
    """The emulator and its model of a CPU."""
    root: str
    """The folder of the C library in /usr."""
    flushes: bool = False
    """Whether vector instructions take subnormal numbers for zero."""
    suffix: str = ".so"

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables of a program that uses a library in the folder."""
        # Symbols are looked up at once, so that one that is missing is noticed.
        return {"LD_LIBRARY_PATH": str(folder), "LD_BIND_NOW": "1"}

    def require(self) -> None:
        """Skip the test if the machine cannot be had here."""
        if shutil.which(self.qemu) is None or not Path("/usr", self.root).is_dir():
            pytest.skip(f"needs {self.qemu} and the C library in /usr/{self.root}")

    def command(self, program: Path, *options: str) -> list[str | Path]:
        """The words that run a program on the machine."""
        return [self.qemu, "-cpu", self.cpu, "-L", Path("/usr", self.root), *options, program]

    def run(self, library: Path, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs of the library, which must be named libmodel.so.

        Raises:
            RunFailedError: with the message of the model.
            EmulatorFaultError: this version of qemu cannot run it.
        """
        assert library.name == "libmodel.so"
        folder = library.parent
        metadata = read_metadata(library)
        program = build_program(folder, PROGRAM, library, target=self.zig)
        given = [inputs[spec["name"]] for spec in metadata["inputs"]]
        (folder / "in").write_bytes(b"".join(map(pack, given)))
        files = [folder / "in", folder / "out", str(len(metadata["outputs"]))]
        variables = self.environment(folder).items()
        settings = [word for name, value in variables for word in ("-E", f"{name}={value}")]
        done = subprocess.run(
            [*self.command(program, *settings), *files],
            capture_output=True,
            text=True,
            check=False,
        )
        if _FAULT in done.stderr:
            raise EmulatorFaultError("needs qemu 8 or later")
        if done.returncode != 0:
            raise RunFailedError(f"exit code {done.returncode}: {done.stderr}")
        return list(unpack((folder / "out").read_bytes()))


@dataclass(frozen=True)
class Wasm:
    """WebAssembly under wasmtime."""

    id: str = "wasm32"
    target: str = "wasm32"
    flushes: bool = False
    suffix: str = ".wasm"

    def require(self) -> None:
        """There is nothing that could be missing: wasmtime is a Python package."""

    def run(self, library: Path, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs of the module.

        Raises:
            RunFailedError: with the message of the model.
        """
        model = WasmModel(library)
        try:
            model.run(inputs)  # the workspace is used again
            return model.run(inputs)
        except RuntimeError as err:
            raise RunFailedError(str(err)) from err
        finally:
            model.close()


_ARM64 = ("aarch64-linux-gnu.2.17", "qemu-aarch64-static")
_ARM32 = ("arm-linux-gnueabihf.2.17", "qemu-arm-static")
_RISCV = ("riscv64-linux-gnu.2.27", "qemu-riscv64-static")

LINUX = (
    Emulated("cortex-a53", "raspberry-pi-3", *_ARM64, "cortex-a53", "aarch64-linux-gnu"),
    Emulated("cortex-a72", "raspberry-pi-4", *_ARM64, "cortex-a72", "aarch64-linux-gnu"),
    Emulated("neoverse-n1", "graviton2", *_ARM64, "neoverse-n1", "aarch64-linux-gnu"),
    Emulated("armv7", "raspberry-pi-32", *_ARM32, "cortex-a7", "arm-linux-gnueabihf", flushes=True),
    Emulated("riscv64", "riscv64", *_RISCV, "rv64", "riscv64-linux-gnu"),
    Emulated("riscv64v", "riscv64v", *_RISCV, "rv64,v=true,vlen=128", "riscv64-linux-gnu"),
)
MACHINES: tuple[Emulated | Wasm, ...] = (*LINUX, Wasm())

each_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.id)
each_linux = pytest.mark.parametrize("machine", LINUX, ids=lambda machine: machine.id)


def quick_on(*quick: str) -> pytest.MarkDecorator:
    """All machines, of which those that are not named are for the long tests."""
    return pytest.mark.parametrize(
        "machine",
        [
            pytest.param(m, id=m.id, marks=() if m.id in quick else pytest.mark.emulated)
            for m in MACHINES
        ],
    )
