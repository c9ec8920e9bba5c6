"""From the words of ``--target`` to a ``Machine``."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence

from tvm.target import Target, codegen

from rten_aot.errors import TargetError
from rten_aot.targets import host
from rten_aot.targets.arm import target as arm
from rten_aot.targets.base import Machine
from rten_aot.targets.x86 import target as x86

_OPTIONS = ("-mcpu", "-mattr", "-mtriple")
_X86_TRIPLE = "x86_64-unknown-linux-gnu"
_ARM_TRIPLE = "aarch64-unknown-linux-gnu"
_ARMV7_TRIPLE = "armv7-unknown-linux-gnueabihf"


def descriptions() -> dict[str, str]:
    """The names that ``get_machine`` takes, each with a few words on what it is."""
    return {
        "llvm": f"a safe choice for this computer's architecture ({_baseline(host.arch())})",
        "native": "exactly this computer",
        **x86.NAMED,
        **{name: text for name, (_, text) in (*arm.NAMED.items(), *arm.ARMV7.items())},
    }


def names() -> list[str]:
    """The names that ``get_machine`` takes."""
    return list(descriptions())


def get_machine(
    target: str,
    *,
    mcpu: str | None = None,
    mattr: str | Sequence[str] | None = None,
    mtriple: str | None = None,
) -> Machine:
    """The machine that ``target`` names.

    Args:
        target: one of ``names()``, possibly followed by options, as in
            ``llvm -mcpu=native -mattr=+a``.
        mcpu: LLVM's name of the CPU, or ``native``. Without it ``llvm`` means CPUs of the last
            fifteen years (x86-64-v2) or any 64-bit Arm.
        mattr: features to add or leave out, ``+a,-b`` or a list of such words.
        mtriple: the system, as LLVM names it.

    Raises:
        TargetError: a name is unknown or the machine is not supported.
    """
    kind, options = _split(target)
    mcpu = options.get("-mcpu", mcpu)
    mtriple = options.get("-mtriple", mtriple)
    words = [] if mattr is None else [mattr] if isinstance(mattr, str) else list(mattr)
    words += [options["-mattr"]] if "-mattr" in options else []
    attrs = _attributes(words)
    triple, cpu = _named(kind)
    if mtriple is not None:
        if cpu is not None and _arch(mtriple) != _arch(triple):
            raise TargetError(f'target "{kind}" is no CPU of "{mtriple}"')
        triple = mtriple
    arch = _arch(triple)
    cpu = mcpu or cpu or _baseline(arch)
    extra: tuple[str, ...] = ()
    caches = None
    if cpu == "native":
        if arch != host.arch():
            raise TargetError(
                f'-mcpu=native is this computer\'s CPU ({host.arch()}), which is not of "{triple}"',
                hint="name the CPU that the model is to run on",
            )
        cpu, extra = _native(arch, triple)
        caches = host.caches()
    _check_cpu(cpu, triple)
    return _machine(triple, cpu, _merge(extra, attrs, cpu, triple), caches)


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
        if name not in _OPTIONS:
            raise TargetError(
                f'target "{target}": unknown option "{name}"; options: {", ".join(_OPTIONS)}'
            )
        value = value if equals else next(rest, "")
        if not value:
            raise TargetError(f'target "{target}": option "{name}" has no value')
        options[name] = f"{options[name]},{value}" if name in options else value
    return words[0], options


def _named(kind: str) -> tuple[str, str | None]:
    """Triple and CPU of a name; no CPU for plain ``llvm``."""
    if kind == "llvm":
        return host.triple(), None
    if kind == "native":
        return host.triple(), "native"
    if kind in x86.NAMED:
        return _X86_TRIPLE, kind
    if kind in arm.NAMED:
        return _ARM_TRIPLE, arm.NAMED[kind][0]
    if kind in arm.ARMV7:
        return _ARMV7_TRIPLE, arm.ARMV7[kind][0]
    if "," in kind:
        raise TargetError(f'target "{kind}" names several CPUs, where one is wanted')
    raise TargetError(
        f'unknown target "{kind}"; targets: {", ".join(names())}', hint=_nearest(kind, names())
    )


def _nearest(name: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else None


def _arch(triple: str) -> str:
    first = triple.split("-", 1)[0].lower()
    if first in ("x86_64", "amd64"):
        return "x86_64"
    if first in ("aarch64", "arm64"):
        return "aarch64"
    if first.startswith("armv7"):
        return "arm"
    raise TargetError(
        f'target triple "{triple}": architecture "{first}" is not supported; '
        "supported: x86_64, aarch64, armv7"
    )


def _baseline(arch: str) -> str:
    if arch == "x86_64":
        return x86.BASELINE
    return arm.BASELINE if arch == "aarch64" else arm.ARMV7["armv7"][0]


def _feature_table(arch: str) -> Mapping[str, str]:
    tables = {"x86_64": x86.FEATURES, "aarch64": arm.FEATURES, "arm": arm.ARMV7_FEATURES}
    return tables[arch]


def _llvm_features(triple: str, cpu: str, attrs: Sequence[str] = ()) -> frozenset[str]:
    """All features, in LLVM's names, that LLVM uses for a CPU with attributes."""
    config: dict[str, object] = {"kind": "llvm", "mtriple": triple, "mcpu": cpu}
    if attrs:
        config["mattr"] = list(attrs)
    return frozenset(str(f) for f in codegen.llvm_get_cpu_features(Target(config)))


def _used_features(triple: str, cpu: str, attrs: Sequence[str] = ()) -> frozenset[str]:
    """Those of ``_llvm_features`` that some CPUs of the architecture lack."""
    return _llvm_features(triple, cpu, attrs) & frozenset(_feature_table(_arch(triple)))


def _native(arch: str, triple: str) -> tuple[str, tuple[str, ...]]:
    """CPU and attributes of this computer.

    Virtual machines hide features of the CPU whose name they show, so the flags have the last word:
    if the name promises more, the best general level that the flags hold takes its place.
    """
    present = host.features(_feature_table(arch))
    name = host.cpu_name()
    if name in _cpus(triple) and _used_features(triple, name) <= present:
        return name, ()
    levels = x86.LEVELS if arch == "x86_64" else (_baseline(arch),)
    fitting = [level for level in levels if _used_features(triple, level) <= present]
    level = fitting[0] if fitting else levels[-1]
    extra: tuple[str, ...] = ()
    for feature in sorted(present - _used_features(triple, level)):
        # To LLVM one feature implies others, of which some may be hidden.
        if _used_features(triple, level, [*extra, f"+{feature}"]) <= present:
            extra = (*extra, f"+{feature}")
    return level, extra


def _cpus(triple: str) -> list[str]:
    base = Target({"kind": "llvm", "mtriple": triple, "mcpu": _baseline(_arch(triple))})
    return [str(name) for name in codegen.llvm_get_cpu_archlist(base)]


def _check_cpu(cpu: str, triple: str) -> None:
    known = _cpus(triple)
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


def _merge(extra: Sequence[str], attrs: Sequence[str], cpu: str, triple: str) -> tuple[str, ...]:
    """All attributes, each feature once; later ones win."""
    last: dict[str, str] = {}
    for attr in (*extra, *attrs):
        last.pop(attr[1:], None)
        last[attr[1:]] = attr
    if attrs:
        known: set[str] = set(_feature_table(_arch(triple)))
        if not {a[1:] for a in attrs} <= known:
            known |= {f for name in _cpus(triple) for f in _llvm_features(triple, name)}
        for attr in attrs:
            if attr[1:] not in known:
                raise TargetError(
                    f'-mattr: unknown feature "{attr[1:]}" for "{triple}"',
                    hint=_nearest(attr[1:], known),
                )
    return tuple(last.values())


def _machine(
    triple: str, cpu: str, attrs: tuple[str, ...], caches: tuple[int, int] | None
) -> Machine:
    arch = _arch(triple)
    features = _used_features(triple, cpu, attrs)
    abi = None
    if arch == "x86_64":
        bits, registers, fma = x86.vector_unit(features)
        default = x86.CACHES.get(cpu, x86.CACHES[x86.BASELINE])
    else:
        bits, registers = arm.NEON if arch == "aarch64" else arm.ARMV7_NEON
        fma = arch == "aarch64" or "vfp4" in features
        default = arm.CACHES.get(cpu, arm.CACHES[arm.BASELINE])
        if triple.endswith("hf"):
            abi = "hard"
    l1, l2 = caches or default
    return Machine(
        name=" ".join((cpu, *attrs)),
        triple=triple,
        cpu=cpu,
        attrs=attrs,
        features=tuple(sorted(features)),
        vector_bits=bits,
        vector_registers=registers,
        l1_bytes=l1 * 1024,
        l2_bytes=l2 * 1024,
        fma=fma,
        abi=abi,
    )


def runs_here(machine: Machine) -> bool:
    """Whether this computer can run code for the machine."""
    try:
        arch = _arch(machine.triple)
    except TargetError:
        return False
    if arch != host.arch() or ("linux" in machine.triple) != ("linux" in host.triple()):
        return False
    return frozenset(machine.features) <= host.features(_feature_table(arch))
