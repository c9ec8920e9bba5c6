"""What the files of a bundle say of a library: its tensors, and names for them in programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """An input or output of the model."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    """Sizes, names of dimensions that are free, and None for free ones without a name."""
    identifier: str = ""
    """Of an input: a name in programs that no other input has."""
    sizes: tuple[int | str, ...] = ()
    """The shape of an input, free sizes by their names in programs."""

    @property
    def line(self) -> str:
        """Name, data type and shape for people."""
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return plain(f"{self.name}  {self.dtype}  [{sizes}]")


@dataclass(frozen=True)
class Kit:
    """A library, with all that its bundle depends on."""

    library: str
    """Its file name, ``lib….so``."""
    prefix: str
    """What its C functions begin with."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    free: Mapping[str, str]
    """Names in programs of the sizes that the model leaves open, each with what it is."""
    metadata: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What linkers call the library."""
        return self.library.removeprefix("lib").removesuffix(".so")

    @property
    def maker(self) -> str:
        """What made the library."""
        return f"rten-aot {self.metadata['versions']['rten_aot']}"


def library_name(stem: str) -> str:
    """The file name of the library of a model."""
    return f"lib{_identifier(stem)}.so"


def make_kit(library: str, prefix: str, metadata: Mapping[str, Any]) -> Kit:
    """The kit for a library with this file name and metadata."""
    reader = _Inputs()
    inputs = tuple(reader.read(facts) for facts in metadata["inputs"])
    outputs = tuple(
        Tensor(facts["name"], facts["dtype"], tuple(facts["shape"]))
        for facts in metadata["outputs"]
    )
    return Kit(library, prefix, inputs, outputs, reader.free, metadata)


class _Inputs:
    """Names inputs and their free sizes."""

    def __init__(self) -> None:
        self.free: dict[str, str] = {}
        self._dimensions: dict[str, str] = {}
        self._taken: set[str] = set()

    def read(self, facts: Mapping[str, Any]) -> Tensor:
        name = self._unused(facts["name"])
        sizes = tuple(self._size(size, name, axis) for axis, size in enumerate(facts["shape"]))
        return Tensor(facts["name"], facts["dtype"], tuple(facts["shape"]), name, sizes)

    def _size(self, size: int | str | None, name: str, axis: int) -> int | str:
        if isinstance(size, int):
            return size
        if size in self._dimensions:
            return self._dimensions[size]
        constant = self._unused(f"DIM_{size or f'{name}_{axis}'}".upper())
        self.free[constant] = plain(size or f"axis {axis} of {name}")
        if size is not None:
            self._dimensions[size] = constant
        return constant

    def _unused(self, wanted: str) -> str:
        name, number = _identifier(wanted), 2
        while name in self._taken:
            name, number = f"{_identifier(wanted)}_{number}", number + 1
        self._taken.add(name)
        return name


def _identifier(name: str) -> str:
    """The name with all but letters, digits and underscores of ASCII replaced."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def plain(text: str) -> str:
    """Text that may stand in a comment: one line, in which no comment begins or ends."""
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return printable.replace("*/", "* /").replace("/*", "/ *")
