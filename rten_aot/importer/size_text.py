"""Sizes in messages: in the model's own names of dimensions, not in those of variables."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx

_SIGNS: dict[type[tirx.Expr], tuple[str, int]] = {
    tirx.Or: ("or", 0),
    tirx.And: ("and", 1),
    tirx.EQ: ("==", 2),
    tirx.NE: ("!=", 2),
    tirx.LT: ("<", 2),
    tirx.LE: ("<=", 2),
    tirx.GT: (">", 2),
    tirx.GE: (">=", 2),
    tirx.Add: ("+", 3),
    tirx.Sub: ("-", 3),
    tirx.Mul: ("*", 4),
    tirx.FloorDiv: ("//", 4),
    tirx.FloorMod: ("%", 4),
}
"""How an operation is written, and how tightly it binds."""
_CHOICE, _WHOLE = -1, 5
_CALLS: dict[type[tirx.Expr], str] = {tirx.Min: "min", tirx.Max: "max"}


def size_text(size: int | tirx.Expr, names: Mapping[str, str]) -> str:
    """The size as Python would write it; ``names`` are those of its variables by their own."""
    return _text(size, names)[0]


def _text(size: int | tirx.Expr, names: Mapping[str, str]) -> tuple[str, int]:
    """The text and how tightly it binds."""
    if isinstance(size, (int, tirx.IntImm)):
        return str(int(size)), _WHOLE
    if isinstance(size, tirx.Var):
        return names.get(size.name, str(size.name)), _WHOLE
    kind = type(size)
    if kind in _CALLS:
        return f"{_CALLS[kind]}({_text(size.a, names)[0]}, {_text(size.b, names)[0]})", _WHOLE
    if kind in _SIGNS:
        return _operation(size, names)
    if isinstance(size, tirx.Select):
        parts = (size.true_value, size.condition, size.false_value)
        then, condition, otherwise = (_within(p, _CHOICE + 1, names) for p in parts)
        return f"{then} if {condition} else {otherwise}", _CHOICE
    return str(size), _CHOICE


def _operation(size: tirx.Expr, names: Mapping[str, str]) -> tuple[str, int]:
    sign, level = _SIGNS[type(size)]
    right = size.b
    if sign == "+" and isinstance(right, tirx.IntImm) and int(right) < 0:
        sign, right = "-", -int(right)
    return f"{_within(size.a, level, names)} {sign} {_within(right, level + 1, names)}", level


def _within(size: int | tirx.Expr, level: int, names: Mapping[str, str]) -> str:
    """The text as an operand of something that binds as tightly as ``level``."""
    text, own = _text(size, names)
    return text if own >= level else f"({text})"
