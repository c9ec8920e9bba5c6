"""Every error a user of the compiler can meet, and the one place their messages are laid out."""

from __future__ import annotations


class CompileError(Exception):
    """A model cannot be compiled as asked.

    The message has the form ``in node "enc/conv1" (Conv), attribute "auto_pad": reason`` and, on a
    second line, ``hint: …`` where there is a way out.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        op: str | None = None,
        attr: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.node = node
        self.op = op
        self.attr = attr
        self.hint = hint
        super().__init__(self._render())

    def _render(self) -> str:
        place = []
        if self.node is not None:
            place.append(node_text(self.node, self.op))
        elif self.op is not None:
            place.append(f"in operator {self.op}")
        if self.attr is not None:
            place.append(f'attribute "{self.attr}"')
        text = ", ".join(place) + ": " + self.message if place else self.message
        return text + (f"\nhint: {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.node, self.op, self.attr, self.hint))


class Ended(SystemExit):
    """The process was asked to end by a signal; ``code`` is what a shell reports then."""

    def __init__(self, code: int | str) -> None:
        super().__init__(int(code))


def node_text(name: str, op: str | None) -> str:
    """How messages name a node: ``in node "enc/conv1" (Conv)``."""
    kind = f" ({op})" if op else ""
    return f'in node "{name}"{kind}' if name else f"in an unnamed node{kind}"


def _rebuild(
    kind: type[CompileError],
    message: str,
    node: str | None,
    op: str | None,
    attr: str | None,
    hint: str | None,
) -> CompileError:
    return kind(message, node=node, op=op, attr=attr, hint=hint)


class ModelFormatError(CompileError):
    """The file is not a valid .rten model."""


class UnsupportedOpError(CompileError):
    """The model uses an operator, attribute value or data type that is not supported."""


class ShapeError(CompileError):
    """Shapes or data types of the model, or those asked for, contradict each other."""


class TargetError(CompileError):
    """The target is unknown, or cannot do what was asked."""


class LinkError(CompileError):
    """The machine code could not be turned into a shared library."""


class InternalError(Exception):
    """A fault of the compiler itself; please report it with the model."""
