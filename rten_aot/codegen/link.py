"""From objects and C text to a library, by the clang and lld inside the ``ziglang`` package.

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
from typing import Literal, TypeAlias

from rten_aot.codegen.elf import check_library
from rten_aot.codegen.localize import localize
from rten_aot.codegen.platforms import WASM, Platform, platform_of
from rten_aot.codegen.wasm import check_module
from rten_aot.errors import InternalError, LinkError
from rten_aot.files import new_file

NATIVE = Path(__file__).resolve().parent / "native"
"""The folder of the C runtime and of the header that generated C text includes."""

DEFAULT_PREFIX = "rten_aot"

_HEADER = NATIVE.parents[1] / "include" / "rten_aot.h"
_FUNCTIONS = ("create", "destroy", "error", "metadata", "run")
_PROFILE_FUNCTIONS = ("peak", "profile")
_PROFILE_MACRO = "-DRTEN_PROFILE"
_LEVELS_MACRO = "-DRTEN_LEVELS"
_CUDA_MACRO = "-DRTEN_CUDA"

Form: TypeAlias = Literal["library", "object", "archive"]
"""A library to load (for WebAssembly a module), or an object to link, alone or in an archive."""

_COMPILE = ("-O2", "-g0", "-std=gnu11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fPIC")
_LINK = (
    "-shared",
    "-s",
    "-Wl,-z,now",
    "-Wl,-Bsymbolic",
    "-Wl,--gc-sections",
    "-Wl,--no-undefined",
)
# The stack is that of a thread of the native runtime (pool.c).
_LINK_WASM = ("-mexec-model=reactor", "-s", "-Wl,--gc-sections", "-Wl,-z,stack-size=1048576")
_WASM_EXPORTS = ("malloc", "free")


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
    form: Form = "library",
    profile: bool = False,
    levels: bool = False,
    cuda: bool = False,
) -> None:
    """Link a model's objects, its generated C text and the C runtime to ``output``.

    ``output`` is replaced in one step when all went well, and left alone otherwise.

    Args:
        objects: of the host program and the kernels. The one with the weights comes first, so
            that it does not lie between code and the read-only data near it.
        output: where the library goes.
        triple: the LLVM triple that the objects were built for.
        c_sources: C files, which find ``rten_aot_internal.h`` by its name.
        include_dirs: further folders of headers.
        soname: by default the file name of ``output``; modules have none.
        symbol_prefix: what the exported functions begin with, in place of ``rten_aot``.
        workdir: an existing folder for temporary files that the caller removes.
        form: an object has all that the library has, for another linker to take in; it defines
            the C interface and no other names. There are none for WebAssembly.
        profile: the host program times its steps; the C interface has two functions more.
        levels: the generated C text has a descriptor for each of several CPUs.
        cuda: the generated C text has the tables of kernels for NVIDIA GPUs.

    Raises:
        LinkError: the linker is not installed, or failed, or cannot do this for the triple.
        InternalError: the library would not run where it should.
        OSError: the output's folder cannot be written.
    """
    prefix = (symbol_prefix or DEFAULT_PREFIX).rstrip("_")
    if not re.fullmatch(r"[A-Za-z_]\w*", prefix):
        raise LinkError(f'symbol prefix "{symbol_prefix}" is not a C identifier')
    platform = platform_of(triple)
    check_form(platform, form)
    with contextlib.ExitStack() as stack:
        if workdir is None:
            workdir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rten-aot-")))
        temporary = stack.enter_context(new_file(output))
        zig = _Zig(platform, workdir)
        functions = (*_FUNCTIONS, *_PROFILE_FUNCTIONS) if profile else _FUNCTIONS
        exports = [f"{prefix}_{name}" for name in functions]
        choices = ((_PROFILE_MACRO, profile), (_LEVELS_MACRO, levels), (_CUDA_MACRO, cuda))
        macros = [macro for macro, on in choices if on]
        made = temporary if form != "archive" else workdir.resolve() / f"{prefix}.o"
        zig.compile(
            *_form_options(platform, form, workdir, soname or output.name, exports),
            *macros,
            *(f"-I{folder.resolve()}" for folder in (NATIVE, *include_dirs)),
            *(str(path.resolve()) for path in (*objects, *c_sources)),
            str(zig.runtime_object(prefix, macros)),
            # Where glibc is old, what opens the driver is in a library of its own.
            *(["-ldl"] if cuda and form == "library" else []),
            "-o",
            str(made),
        )
        if form != "library":
            localize(made, set(exports))
        elif platform.machine == WASM:
            check_module(made, symbol_prefix=prefix, profile=profile)
            made.chmod(0o644)  # the linker takes it for a program
        else:
            _check_elf(made, platform, prefix)
        if form == "archive":
            zig.run("ar", "rcsD", str(temporary), str(made))


def check_form(platform: Platform, form: Form) -> None:
    """Refuse what cannot be linked.

    Raises:
        LinkError: objects of this platform cannot go into other programs.
    """
    if platform.machine == WASM and form != "library":
        raise LinkError(
            "objects for WebAssembly are not supported, only modules",
            hint="each model as a module of its own",
        )


def _check_elf(path: Path, platform: Platform, prefix: str) -> None:
    library = check_library(path, symbol_prefix=prefix, libc=platform.libc or "glibc")
    if library.machine != platform.machine:
        raise InternalError(f"the linked library is for {library.machine}, not {platform.machine}")


def _form_options(
    platform: Platform, form: Form, workdir: Path, soname: str, exports: Sequence[str]
) -> list[str]:
    if form != "library":
        return ["-r"]
    if platform.machine == WASM:
        return [*_LINK_WASM, *(f"-Wl,--export={name}" for name in (*exports, *_WASM_EXPORTS))]
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
    """zig as a compiler and linker for one platform."""

    def __init__(self, platform: Platform, workdir: Path) -> None:
        self._command = _find_zig()
        self._platform = platform
        self._cache = _cache_dir()
        self._workdir = workdir

    def compile(self, *arguments: str) -> None:
        """Run clang for the platform."""
        self.run("cc", *self._platform.zig, *_COMPILE, *arguments)

    def run(self, tool: str, *arguments: str) -> None:
        """Run one of zig's tools."""
        command = [*self._command, tool, *arguments]
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
            ended = done.returncode < 0
            how = (
                f"was ended by signal {-done.returncode}"
                if ended
                else (f"failed with exit code {done.returncode}")
            )
            raise LinkError(
                f"zig {tool} {how}\n{_useful(done.stdout)}\ncommand: {shlex.join(command)}",
                hint="the disk or the memory may be full" if ended else None,
            )

    def runtime_object(self, prefix: str, macros: Sequence[str]) -> Path:
        """The C runtime as one object, compiled once per content, options and zig."""
        options = list(macros)
        if prefix != DEFAULT_PREFIX:
            names = (*_FUNCTIONS, *_PROFILE_FUNCTIONS)
            options += [f"-Drten_aot_{name}={prefix}_{name}" for name in names]
        sources = sorted(NATIVE.glob("*.c"))
        digest = hashlib.sha256()
        for text in (_zig_version(), *self._platform.zig, *_COMPILE, *options):
            digest.update(text.encode() + b"\0")
        for path in (*sources, *sorted(NATIVE.glob("*.h")), _HEADER):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        cached = self._cache / "native" / f"{digest.hexdigest()[:32]}.o"
        if cached.is_file():
            return cached
        cached.parent.mkdir(exist_ok=True)
        temporary = cached.with_name(f".{cached.name}.{os.getpid()}.tmp")
        try:
            self._join(options, sources, temporary)
            os.replace(temporary, cached)
        finally:
            temporary.unlink(missing_ok=True)
        return cached

    def _join(self, options: Sequence[str], sources: Sequence[Path], output: Path) -> None:
        """Compile the sources to one object."""
        if self._platform.machine != WASM:
            self.compile("-r", *options, *map(str, sources), "-o", str(output))
            return
        # Here zig's -r leaves out all sources but one.
        objects = [str(self._workdir.resolve() / f"{source.stem}.o") for source in sources]
        for source, made in zip(sources, objects, strict=True):
            self.compile("-c", *options, str(source), "-o", made)
        self.run("wasm-ld", "-r", *objects, "-o", str(output))


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
