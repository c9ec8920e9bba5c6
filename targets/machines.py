"""From the words of ``--target`` to a ``Machine``."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence

from tvm.target import Target, codegen

from rten_aot.errors import TargetError
from rten_aot.options import Libc
from rten_aot.targets import host
from rten_aot.targets.architecture import Architecture, CacheSizes, Named
from rten_aot.targets.arm.target import AARCH64, ARMV7
from rten_aot.targets.base import Machine
from rten_aot.targets.cuda import target as cuda
from rten_aot.targets.riscv.target import RISCV64
from rten_aot.targets.wasm.target import WASM32
from rten_aot.targets.x86.target import X86_64

ARCHITECTURES = (X86_64, AARCH64, ARMV7, RISCV64, WASM32)
_OPTIONS = ("-mcpu", "-mattr", "-mtriple")
_GPU_OPTIONS = (*_OPTIONS, "-arch", "-precision")


def descriptions() -> dict[str, str]:
    """The names that ``get_machine`` takes, each with a few words on what it is."""
    baseline = _architecture(host.triple()).baseline
    return {
        "llvm": f"a safe choice for this computer's architecture ({baseline})",
        "native": "exactly this computer",
        **{name: _described(named) for a in ARCHITECTURES for name, named in a.named.items()},
        **{name: named.text for name, named in cuda.NAMED.items()},
    }


def _described(named: Named) -> str:
    return named.text if named.cores is None else f"{named.text}, {named.cores} cores"


def names() -> list[str]:
    """The names that ``get_machine`` takes."""
    return list(descriptions())


def get_machine(
    target: str,
    *,
    mcpu: str | None = None,
    mattr: str | Sequence[str] | None = None,
    mtriple: str | None = None,
    libc: Libc | None = None,
) -> Machine:
    """The machine that ``target`` names.

    Args:
        target: one of ``names()``, possibly followed by options, as in
            ``llvm -mcpu=native -mattr=+a``. After the name of a GPU, ``-arch`` names architectures
            of GPUs; all else is said of the CPU beside it.
        mcpu: LLVM's name of the CPU, or ``native``. Without it ``llvm`` means CPUs of the last
            fifteen years (x86-64-v2) or any 64-bit Arm.
        mattr: features to add or leave out, ``+a,-b`` or a list of such words.
        mtriple: the system, as LLVM names it.
        libc: the C library of the Linux system, in place of what the triple says.

    Raises:
        TargetError: a name is unknown or the machine is not supported.
    """
    kind, options = _split(target)
    if kind in cuda.NAMED:
        archs, precision = options.pop("-arch", None), options.pop("-precision", None)
        words = [cuda.NAMED[kind].host, *(f"{k}={v}" for k, v in options.items())]
        beside = get_machine(" ".join(words), mcpu=mcpu, mattr=mattr, mtriple=mtriple, libc=libc)
        return cuda.gpu(kind, beside, archs, precision)
    mcpu = options.get("-mcpu", mcpu)
    mtriple = options.get("-mtriple", mtriple)
    words = [] if mattr is None else [mattr] if isinstance(mattr, str) else list(mattr)
    words += [options["-mattr"]] if "-mattr" in options else []
    attrs = _attributes(words)
    architecture, named = _find(kind)
    triple = host.triple() if architecture is None else architecture.triple
    if mtriple is not None:
        if architecture is not None and not architecture.has_triple(mtriple):
            raise TargetError(f'target "{kind}" is no CPU of "{mtriple}"')
        triple = mtriple
    if libc is not None:
        triple = _with_libc(triple, libc)
    architecture = architecture or _architecture(triple)
    native = mcpu == "native" or (kind == "native" and mcpu is None)
    caches = named.caches if named and not mcpu else None
    extra = named.attrs if named else ()
    if native:
        cpu, extra = _native(architecture, triple)
        caches = host.caches()
    else:
        cpu = mcpu or (named.cpu if named else architecture.baseline)
        _check_cpu(cpu, architecture, triple)
    added = _merge(extra, attrs, architecture, triple)
    _check_needed(architecture, triple, cpu, added)
    plain = named is not None and not mcpu and not attrs
    name = kind if plain else " ".join((cpu, *added))
    return _machine(architecture, triple, name, cpu, added, caches)


def _split(target: str) -> tuple[str, dict[str, str]]:
    try:
        words = shlex.split(target)
    except ValueError as err:
        raise TargetError(f'target "{target}": {err}') from err
    if not words:
        raise TargetError("no target is given", hint=f"targets: {', '.join(names())}")
    options: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.partition("=")
        known = _GPU_OPTIONS if words[0] in cuda.NAMED else _OPTIONS
        if name not in known:
            raise TargetError(
                f'target "{target}": unknown option "{name}"; options: {", ".join(known)}'
            )
        value = value if equals else next(rest, "")
        if not value:
            raise TargetError(f'target "{target}": option "{name}" has no value')
        if name in options and name != "-mattr":
            raise TargetError(f'target "{target}": option "{name}" is given twice')
        options[name] = f"{options[name]},{value}" if name in options else value
    return words[0], options


def _find(kind: str) -> tuple[Architecture | None, Named | None]:
    """What a name is in the tables; nothing for ``llvm`` and ``native``, which this computer is."""
    if kind in ("llvm", "native"):
        return None, None
    for architecture in ARCHITECTURES:
        if kind in architecture.named:
            return architecture, architecture.named[kind]
    if "," in kind:
        raise TargetError(f'target "{kind}" names several CPUs, where one is wanted')
    raise TargetError(
        f'unknown target "{kind}"; targets: {", ".join(names())}', hint=_nearest(kind, names())
    )


def _nearest(name: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else None


def _architecture(triple: str) -> Architecture:
    for architecture in ARCHITECTURES:
        if architecture.has_triple(triple):
            return architecture
    raise TargetError(
        f'target triple "{triple}": architecture "{triple.split("-", 1)[0].lower()}" is not '
        "supported; supported: x86_64, aarch64, armv7, riscv64, wasm32"
    )


def _with_libc(triple: str, libc: Libc) -> str:
    """``x86_64-unknown-linux-gnu``, "musl" --> ``x86_64-unknown-linux-musl``."""
    changed, count = re.subn(
        r"(?<=-linux-)(gnu|musl)(?=(eabihf)?$)", "gnu" if libc == "glibc" else libc, triple
    )
    if count == 0:
        raise TargetError(f'--libc: "{triple}" is no Linux with a choice of C libraries')
    return changed


def _llvm_features(
    architecture: Architecture, triple: str, cpu: str, attrs: Sequence[str] = ()
) -> frozenset[str]:
    """All features, in LLVM's names, that LLVM uses for a CPU with attributes."""
    config: dict[str, object] = {"kind": "llvm", "mtriple": triple, "mcpu": cpu}
    if architecture.attrs or attrs:
        config["mattr"] = [*architecture.attrs, *attrs]
    return frozenset(str(f) for f in codegen.llvm_get_cpu_features(Target(config)))


def _used_features(
    architecture: Architecture, triple: str, cpu: str, attrs: Sequence[str] = ()
) -> frozenset[str]:
    """Those of ``_llvm_features`` that some CPUs of the architecture lack."""
    return _llvm_features(architecture, triple, cpu, attrs) & frozenset(architecture.features)


def _native(architecture: Architecture, triple: str) -> tuple[str, tuple[str, ...]]:
    """CPU and attributes of this computer.

    Virtual machines hide features of the CPU whose name they show, so the flags have the last word:
    if the name promises more, the best general level that the flags hold takes its place.
    """
    if architecture is not _architecture(host.triple()):
        raise TargetError(
            f'-mcpu=native is this computer\'s CPU ({host.arch()}), which is not of "{triple}"',
            hint="name the CPU that the model is to run on",
        )

    def used(cpu: str, attrs: Sequence[str] = ()) -> frozenset[str]:
        return _used_features(architecture, triple, cpu, attrs)

    present = host.features(architecture.features)
    name = host.cpu_name()
    if name in _cpus(architecture, triple) and used(name) <= present:
        return name, ()
    fitting = [level for level in architecture.levels if used(level) <= present]
    level = fitting[0] if fitting else architecture.levels[-1]
    extra: tuple[str, ...] = ()
    for feature in sorted(present - used(level)):
        # To LLVM one feature implies others, of which some may be hidden.
        if used(level, [*extra, f"+{feature}"]) <= present:
            extra = (*extra, f"+{feature}")
    return level, extra


def _cpus(architecture: Architecture, triple: str) -> list[str]:
    base = Target({"kind": "llvm", "mtriple": triple, "mcpu": architecture.baseline})
    return [str(name) for name in codegen.llvm_get_cpu_archlist(base)]


def _check_cpu(cpu: str, architecture: Architecture, triple: str) -> None:
    known = _cpus(architecture, triple)
    if cpu not in known:
        raise TargetError(
            f'-mcpu: unknown CPU "{cpu}" for "{triple}"; CPUs: native, {", ".join(known)}',
            hint=_nearest(cpu, ["native", *known]),
        )


def _attributes(words: Sequence[str]) -> list[str]:
    attrs = [a for word in words for a in word.split(",") if a]
    for attr in attrs:
        if attr[0] not in "+-" or len(attr) == 1:
            raise TargetError(f'-mattr: "{attr}" must begin with + or -')
    return attrs


def _merge(
    extra: Sequence[str], attrs: Sequence[str], architecture: Architecture, triple: str
) -> tuple[str, ...]:
    """All attributes, each feature once; later ones win."""
    last: dict[str, str] = {}
    for attr in (*extra, *attrs):
        last.pop(attr[1:], None)
        last[attr[1:]] = attr
    if attrs:
        known: set[str] = set(architecture.features)
        if not {a[1:] for a in attrs} <= known:
            known |= {
                feature
                for name in _cpus(architecture, triple)
                for feature in _llvm_features(architecture, triple, name)
            }
        for attr in attrs:
            if attr[1:] not in known:
                raise TargetError(
                    f'-mattr: unknown feature "{attr[1:]}" for "{triple}"',
                    hint=_nearest(attr[1:], known),
                )
    return tuple(last.values())


def _check_needed(architecture: Architecture, triple: str, cpu: str, attrs: Sequence[str]) -> None:
    """Refuse what LLVM would end the process for, or never come to an end with."""
    present = _llvm_features(architecture, triple, cpu, attrs)
    if missing := [feature for feature in architecture.needed if feature not in present]:
        removed = set(missing) <= _llvm_features(architecture, triple, cpu)
        what = f"-mattr={','.join(attrs)}" if removed else f'-mcpu: CPU "{cpu}"'
        raise TargetError(
            f'{what} is without the feature "{missing[0]}", which all code for "{triple}" needs'
        )


def _machine(
    architecture: Architecture,
    triple: str,
    name: str,
    cpu: str,
    attrs: tuple[str, ...],
    caches: CacheSizes | None,
) -> Machine:
    features = _used_features(architecture, triple, cpu, attrs)
    unit = architecture.vector_unit(features)
    # Without "hf" a triple asks for the soft-float calls that LLVM assumes by itself.
    soft = architecture is ARMV7 and not triple.endswith("hf")
    in_order = architecture.in_order.get(cpu)
    tuning = in_order.attrs if in_order else ()
    l1, l2 = caches or architecture.caches.get(cpu, architecture.caches[architecture.baseline])
    return Machine(
        name=name,
        triple=triple,
        cpu=cpu,
        attrs=(*architecture.attrs, *tuning, *attrs),
        features=tuple(sorted(features)),
        vector_bits=unit.bits,
        vector_registers=unit.registers,
        l1_bytes=l1 * 1024,
        l2_bytes=l2 * 1024,
        fma=unit.fma,
        halves=unit.halves,
        in_order=in_order is not None,
        groups_loads=in_order.groups_loads if in_order else False,
        scheduled_as=in_order.scheduled_as if in_order else None,
        abi=None if soft else architecture.abi,
    )


def runs_here(machine: Machine) -> bool:
    """Whether this computer can run code for the machine."""
    try:
        architecture = _architecture(machine.triple)
    except TargetError:
        return False
    if architecture is not _architecture(host.triple()):
        return False
    if _system(machine.triple) != _system(host.triple()):
        return False
    return frozenset(machine.features) <= host.features(architecture.features)


def _system(triple: str) -> tuple[str, ...]:
    """Operating system and C library, which libraries are made for: ``("linux", "gnu")``."""
    return tuple(word for word in ("linux", "darwin", "gnu", "musl") if word in triple)
