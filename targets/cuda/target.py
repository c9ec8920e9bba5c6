"""The NVIDIA GPUs that code can be made for, and the machine that such a GPU works for."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from rten_aot.errors import TargetError
from rten_aot.targets.base import Machine

ARCHS: Mapping[str, str] = {
    "sm_75": "Turing: T4, GeForce RTX 20",
    "sm_80": "Ampere: A100, A30",
    "sm_86": "Ampere: A10, A40, GeForce RTX 30",
    "sm_87": "Jetson Orin",
    "sm_89": "Ada: L4, L40, GeForce RTX 40",
    "sm_90": "Hopper: H100, H200",
    "sm_100": "Blackwell: B200",
    "sm_120": "Blackwell: GeForce RTX 50",
}
"""The architectures, by NVIDIA's names (https://developer.nvidia.com/cuda-gpus)."""

Precision: TypeAlias = Literal["fp32", "tf32", "fp16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""Exactly float32; or numbers of 11 significant bits, which tensor cores multiply: tf32 has the
range of float32, fp16 ends at 65504."""

_FIRST_TENSOR_CORES = "sm_80"
"""Before it, there are none for these types and shapes."""

DEFAULT_ARCHS = ("sm_75", "sm_80", "sm_90")
"""What ``cuda`` means alone. Code for an architecture also runs on later ones of the same
generation, and the library holds PTX of the last one, which drivers translate for any later GPU."""


@dataclass(frozen=True)
class NamedGpu:
    """A GPU that can be asked for by its name alone."""

    text: str
    archs: tuple[str, ...]
    host: str
    """What ``get_machine`` calls the CPU beside it."""


NAMED: Mapping[str, NamedGpu] = {
    "cuda": NamedGpu("NVIDIA GPUs; -arch says which", DEFAULT_ARCHS, "llvm"),
    "jetson-orin-gpu": NamedGpu(
        "the GPU of NVIDIA Jetson Orin Nano, NX and AGX", ("sm_87",), "jetson-orin"
    ),
}


@dataclass(frozen=True)
class Gpu(Machine):
    """A GPU. All that ``Machine`` says is said of the CPU that the GPU works for."""

    archs: tuple[str, ...] = DEFAULT_ARCHS
    """The architectures that there is to be machine code for, from the oldest to the newest."""
    precision: Precision = "fp32"
    """That of the factors of matrix products of float32; sums are always made in float32."""

    @property
    def host(self) -> Machine:
        """The CPU."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(Machine)}
        return Machine(**fields)


def gpu(kind: str, host: Machine, archs: str | None, precision: str | None) -> Gpu:
    """The GPU called ``kind`` beside a CPU.

    Args:
        kind: one of ``NAMED``.
        host: the CPU.
        archs: names of architectures with commas between them, in place of those of ``kind``.
        precision: one of ``PRECISIONS``.

    Raises:
        TargetError: an architecture or the precision is unknown, or they do not go together.
    """
    order = list(ARCHS)
    fits = _precision(precision)
    names = NAMED[kind].archs if archs is None else tuple(archs.split(","))
    for name in names:
        if name not in ARCHS:
            close = difflib.get_close_matches(name, ARCHS, n=1)
            raise TargetError(
                f'-arch: unknown architecture "{name}"; architectures: {", ".join(ARCHS)}',
                hint=f'did you mean "{close[0]}"?' if close else None,
            )
    chosen = tuple(sorted(set(names), key=order.index))
    if fits != "fp32":
        first = order.index(_FIRST_TENSOR_CORES)
        if archs is None:
            chosen = tuple(name for name in chosen if order.index(name) >= first)
        elif order.index(chosen[0]) < first:
            raise TargetError(
                f'-precision={fits} needs {_FIRST_TENSOR_CORES} or later, not "{chosen[0]}"'
            )
    fields = {f.name: getattr(host, f.name) for f in dataclasses.fields(Machine)}
    fields["name"] = " ".join(chosen) if archs is not None else kind
    return Gpu(**fields, archs=chosen, precision=fits)


def _precision(word: str | None) -> Precision:
    for known in PRECISIONS:
        if word in (known, None):
            return known
    raise TargetError(f'-precision: "{word}" is not known; choose from {", ".join(PRECISIONS)}')
