"""From objects and C text to a shared library, by the clang and lld inside the ``ziglang`` package.

No compiler or library of the machine takes part, so the same input gives the same bytes everywhere
and the result runs on old systems.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from rten_aot.codegen.elf import Machine, check_library
from rten_aot.codegen.localize import localize
from rten_aot.errors import InternalError, LinkError

NATIVE = Path(__file__).resolve().parent / "native"
"""The folder of the C runtime and of the header that generated C text includes."""

DEFAULT_PREFIX = "rten_aot"

_HEADER = NATIVE.parents[1] / "include" / "rten_aot.h"
_FUNCTIONS = ("create", "destroy", "error", "metadata", "run")
_PROFILE_FUNCTIONS = ("peak", "profile")
_PROFILE_MACRO = "-DRTEN_PROFILE"
_LEVELS_MACRO = "-DRTEN_LEVELS"

# zig's name of the target with the oldest C library it is built for, and further options. Without
# -rtlib=none zig builds its own compiler-rt, which takes seconds once; ARM needs its 64-bit
# division, RISC-V its half-precision conversions.
_TARGETS: dict[Machine, tuple[str, ...]] = {
    "x86_64": ("-target", "x86_64-linux-gnu.2.17", "-rtlib=none"),
    "aarch64": ("-target", "aarch64-linux-gnu.2.17", "-rtlib=none"),
    "arm": ("-target", "arm-linux-gnueabihf.2.17"),
    "riscv64": ("-target", "riscv64-linux-gnu.2.27"),
}
_COMPILE = ("-O2", "-g0", "-std=gnu11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fPIC")
_LINK = (
    "-shared",
    "-s",
    "-Wl,-z,now",
    "-Wl,-Bsymbolic",
    "-Wl,--gc-sections",
    "-Wl,--no-undefined",
)


def machine_of(triple: str) -> Machine:
    """The machine of an LLVM triple such as ``aarch64-unknown-linux-gnu``.

    Raises:
        LinkError: libraries for this triple cannot be linked.
    """
    arch, _, system = triple.partition("-")
    for machine in get_args(Machine):
        if arch == machine and machine != "arm" and system.endswith("linux-gnu"):
            return cast(Machine, machine)
    if re.fullmatch(r"arm(v7\w*)?", arch) and system.endswith("linux-gnueabihf"):
        return "arm"
    raise LinkError(
        f'linking for "{triple}" is not supported; supported: '
        "x86_64, aarch64 and riscv64 with -linux-gnu, armv7 with -linux-gnueabihf"
    )


def link(
    objects: Sequence[Path],
    output: Path,
    triple: str,
    *,
    c_sources: Sequence[Path] = (),
    include_dirs: Sequence[Path] = (),
    soname: str | None = None,
    symbol_prefix: str | None = None,
    workdir: Path | None = None,
    relocatable: bool = False,
    profile: bool = False,
    levels: bool = False,
) -> None:
    """Link a model's objects, its generated C text and the C runtime to the library ``output``.

    ``output`` is replaced in one step when all went well, and left alone otherwise.

    Args:
        objects: of the host program and the kernels. The one with the weights comes first, so
            that it does not lie between code and the read-only data near it.
        output: where the library goes.
        triple: the LLVM triple that the objects were built for.
        c_sources: C files, which find ``rten_aot_internal.h`` by its name.
        include_dirs: further folders of headers.
        soname: by default the file name of ``output``.
        symbol_prefix: what the exported functions begin with, in place of ``rten_aot``.
        workdir: an existing folder for temporary files that the caller removes.
        relocatable: make one object with the same content, for another linker to take in; it
            defines the C interface and no other names.
        profile: the host program times its steps; the C interface has two functions more.
        levels: the generated C text has a descriptor for each of several CPUs.

    Raises:
        LinkError: the linker is not installed, or failed.
        InternalError: the library would not run where it should.
        OSError: the output's folder cannot be written.
    """
    prefix = (symbol_prefix or DEFAULT_PREFIX).rstrip("_")
    if not re.fullmatch(r"[A-Za-z_]\w*", prefix):
        raise LinkError(f'symbol prefix "{symbol_prefix}" is not a C identifier')
    machine = machine_of(triple)
    destination = output.resolve()
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}.tmp")
    with contextlib.ExitStack() as stack:
        if workdir is None:
            workdir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rten-aot-")))
        stack.callback(temporary.unlink, missing_ok=True)
        zig = _Zig(machine, workdir)
        functions = (*_FUNCTIONS, *_PROFILE_FUNCTIONS) if profile else _FUNCTIONS
        exports = [f"{prefix}_{name}" for name in functions]
        macros = [m for m, on in ((_PROFILE_MACRO, profile), (_LEVELS_MACRO, levels)) if on]
        form = ["-r"] if relocatable else _library_options(workdir, soname or output.name, exports)
        zig.run(
            *form,
            *macros,
            *(f"-I{folder.resolve()}" for folder in (NATIVE, *include_dirs)),
            *(str(path.resolve()) for path in (*objects, *c_sources)),
            str(zig.runtime_object(prefix, macros)),
            "-o",
            str(temporary),
        )
        if relocatable:
            localize(temporary, set(exports))
        else:
            library = check_library(temporary, symbol_prefix=prefix)
            if library.machine != machine:
                raise InternalError(f"the linked library is for {library.machine}, not {machine}")
        os.replace(temporary, destination)


def _library_options(workdir: Path, soname: str, exports: Sequence[str]) -> list[str]:
    script = workdir.resolve() / "exports.map"
    names = " ".join(f"{name};" for name in exports)
    script.write_text(f"{{ global: {names} local: *; }};\n", encoding="utf-8")
    return [*_LINK, f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}"]


def c_header(symbol_prefix: str | None = None) -> str:
    """The text of the C header for libraries linked with ``symbol_prefix``."""
    prefix = (symbol_prefix or DEFAULT_PREFIX).rstrip("_")
    text = _HEADER.read_text(encoding="utf-8")
    if prefix == DEFAULT_PREFIX:
        return text
    names = "|".join((*_FUNCTIONS, *_PROFILE_FUNCTIONS))
    text = re.sub(rf"\brten_aot_({names})\b", rf"{prefix}_\1", text)
    return text.replace("RTEN_AOT_H_", f"{prefix.upper()}_H_")


class _Zig:
    """zig as a compiler and linker for one machine."""

    def __init__(self, machine: Machine, workdir: Path) -> None:
        self._command = _find_zig()
        self._target = _TARGETS[machine]
        self._cache = _cache_dir()
        self._workdir = workdir

    def run(self, *arguments: str) -> None:
        command = [*self._command, "cc", *self._target, *_COMPILE, *arguments]
        environment = {
            **os.environ,
            # What zig builds once: the stubs of the C library. What it builds of a model's own
            # text goes with the work folder, else the cache would grow with every model.
            "ZIG_GLOBAL_CACHE_DIR": str(self._cache / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(self._workdir.resolve() / "zig"),
        }
        # zig looks for build files upwards of where it runs: a fixed place keeps it from any.
        done = subprocess.run(
            command,
            cwd=self._cache,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            raise LinkError(
                f"zig cc failed with exit code {done.returncode}\n"
                f"{_useful(done.stdout)}\ncommand: {shlex.join(command)}"
            )

    def runtime_object(self, prefix: str, macros: Sequence[str]) -> Path:
        """The C runtime as one object, compiled once per content, options and zig."""
        options = list(macros)
        if prefix != DEFAULT_PREFIX:
            names = (*_FUNCTIONS, *_PROFILE_FUNCTIONS)
            options += [f"-Drten_aot_{name}={prefix}_{name}" for name in names]
        sources = sorted(NATIVE.glob("*.c"))
        digest = hashlib.sha256()
        for text in (_zig_version(), *self._target, *_COMPILE, *options):
            digest.update(text.encode() + b"\0")
        for path in (*sources, *sorted(NATIVE.glob("*.h")), _HEADER):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        cached = self._cache / "native" / f"{digest.hexdigest()[:32]}.o"
        if cached.is_file():
            return cached
        cached.parent.mkdir(exist_ok=True)
        temporary = cached.with_name(f".{cached.name}.{os.getpid()}.tmp")
        try:
            self.run("-r", *options, *map(str, sources), "-o", str(temporary))
            os.replace(temporary, cached)
        finally:
            temporary.unlink(missing_ok=True)
        return cached


def _find_zig() -> list[str]:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        raise LinkError(
            "the linker is not installed: there is no Python package ziglang",
            hint='pip install "rten-aot[compiler]"',
        )
    binary = Path(spec.submodule_search_locations[0]) / "zig"
    return [str(binary)] if os.access(binary, os.X_OK) else [sys.executable, "-m", "ziglang"]


def _zig_version() -> str:
    try:
        return importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _cache_dir() -> Path:
    """A folder that outlives this process if possible: the first link for a machine is slow."""
    candidates = []
    if configured := os.environ.get("XDG_CACHE_HOME"):
        candidates.append(Path(configured))
    with contextlib.suppress(RuntimeError):  # no home directory
        candidates.append(Path.home() / ".cache")
    for base in candidates:
        folder = base / "rten-aot"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if base.is_absolute() and os.access(folder, os.W_OK | os.X_OK):
                return folder
    # Named after the user, whom it must belong to: /tmp is shared.
    folder = Path(tempfile.gettempdir()) / f"rten-aot-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid == os.getuid() and not folder.is_symlink():
            return folder
    return Path(tempfile.mkdtemp(prefix="rten-aot-"))


def _useful(output: str, limit: int = 5) -> str:
    """The first lines that say what is wrong; zig repeats its command line before them."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [
        line for line in lines if "error:" in line and "unexpected error" not in line.lower()
    ]
    chosen = (telling or lines)[:limit]
    return "\n".join(line[:500] for line in chosen) or "no output"
