"""Typed access to an operator's attributes; what is not read is an error."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from rten_aot.errors import UnsupportedOpError
from rten_aot.format.graph import Graph, OpNode

T = TypeVar("T")

REQUIRED: Any = object()
"""Stands for the default of an attribute that has none."""


class AttrReader:
    """The attributes of one node.

    A getter without ``default`` raises ``UnsupportedOpError`` if the attribute is absent (a file
    from before the attribute existed, or a node without its table).
    """

    def __init__(self, node: OpNode) -> None:
        self._node = node
        self._read: set[str] = set()

    def int(self, name: str, default: builtins.int = REQUIRED) -> builtins.int:
        """An integer."""
        return builtins.int(self._typed(name, builtins.int, default))

    def float(self, name: str, default: builtins.float = REQUIRED) -> builtins.float:
        """A floating-point number."""
        return builtins.float(self._typed(name, (builtins.float, builtins.int), default))

    def bool(self, name: str, default: builtins.bool = REQUIRED) -> builtins.bool:
        """A flag."""
        return builtins.bool(self._typed(name, (builtins.bool, builtins.int), default))

    def string(self, name: str, default: str = REQUIRED) -> str:
        """A text."""
        return str(self._typed(name, str, default))

    def ints(self, name: str, default: Sequence[builtins.int] = REQUIRED) -> list[builtins.int]:
        """A list of integers."""
        return [builtins.int(v) for v in self._typed(name, (tuple, list), default)]

    def optional_int(self, name: str) -> builtins.int | None:
        """An integer, None if absent."""
        return None if self._value(name) is None else self.int(name)

    def optional_float(self, name: str) -> builtins.float | None:
        """A floating-point number, None if absent."""
        return None if self._value(name) is None else self.float(name)

    def optional_ints(self, name: str) -> list[builtins.int] | None:
        """A list of integers, None if absent."""
        return None if self._value(name) is None else self.ints(name)

    def scalar(
        self, name: str, default: builtins.int | builtins.float = REQUIRED
    ) -> builtins.int | builtins.float:
        """An integer or a float, whichever the file holds."""
        value: builtins.int | builtins.float = self._typed(
            name, (builtins.int, builtins.float), default
        )
        return value

    def graph(self, name: str) -> Graph:
        """A branch or body."""
        value: Graph = self._typed(name, Graph, REQUIRED)
        return value

    def enum(self, name: str, values: Mapping[str, T], default: str = REQUIRED) -> T:
        """What ``values`` gives for the enum's name; other names are refused with the list."""
        key = self.string(name, default)
        if key not in values:
            self.fail(name, f'value "{key}" is not supported; supported: {", ".join(values)}')
        return values[key]

    def ignore(self, name: str, why: str) -> None:
        """Count the attribute as read; ``why`` documents that it has no effect here."""
        del why
        self._read.add(name)

    def finish(self) -> None:
        """Raise if an attribute was not read."""
        attrs = self._node.attrs.items()
        unread = sorted(k for k, v in attrs if k not in self._read and v is not None)
        if unread:
            names = ", ".join(f'"{n}"' for n in unread)
            raise UnsupportedOpError(
                f"attribute(s) {names} not handled", node=self._node.name, op=self._node.op
            )

    def fail(self, name: str, message: str, hint: str | None = None) -> NoReturn:
        """Raise ``UnsupportedOpError`` about an attribute."""
        raise UnsupportedOpError(
            message, node=self._node.name, op=self._node.op, attr=name, hint=hint
        )

    def _value(self, name: str) -> object:
        self._read.add(name)
        return self._node.attrs.get(name)

    def _typed(self, name: str, kind: type | tuple[type, ...], default: object) -> Any:
        value = self._value(name)
        if value is None:
            if default is REQUIRED:
                self.fail(name, "is missing")
            value = default
        if not isinstance(value, kind):
            self.fail(name, f"has the wrong type {type(value).__name__}")
        return value
