"""The cases of ONNX's node suite that do not pass, each under its reason: ``exceptions.txt``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from tests.onnx_suite.node_cases import Outcome

Kind: TypeAlias = Literal["refused", "lost", "semantics", "unsupported"]
"""rten-convert refuses it; an attribute or type is lost on the way to .rten; DESIGN.md says
otherwise; rten-aot does not support it."""

LIST = Path(__file__).with_name("exceptions.txt")
ONNX_VERSION = "1.23"
"""The cases of this version are all accounted for; in others new ones may be refused."""


@dataclass(frozen=True)
class Reason:
    """Why a case does not pass."""

    kind: Kind
    text: str


def read_exceptions() -> dict[str, Reason]:
    """The list: ``[kind] reason`` lines, each followed by the names of cases."""
    found: dict[str, Reason] = {}
    reason: Reason | None = None
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"\[(\w+)\] (.+)", line):
            (kind,) = (k for k in get_args(Kind) if k == heading[1])
            reason = Reason(kind, heading[2])
            continue
        for name in line.split():
            assert reason is not None, f"{name} has no reason"
            assert name not in found, f"{name} is listed twice"
            found[name] = reason
    return found


def complaints(
    outcomes: Mapping[str, Outcome], listed: Mapping[str, Reason], *, version: str
) -> list[str]:
    """What the list and the outcomes disagree in, a line for each case."""
    exact = version.startswith(f"{ONNX_VERSION}.")
    lines = []
    for name, outcome in outcomes.items():
        match outcome.stage, listed.get(name):
            case "pass", None:
                continue
            case "pass", Reason():
                lines.append(f"{name}: passes now; take it off the list")
            case "convert", None:
                if exact:
                    lines.append(f"{name}: rten-convert refuses it: {outcome.message}")
            case stage, None:
                lines.append(f"{name}: fails ({stage}): {_short(outcome.message)}")
            case stage, Reason(kind=kind) if (stage == "convert") != (kind == "refused"):
                lines.append(f'{name}: is listed as "{kind}", but fails in {stage}')
    return lines


def counts(outcomes: Mapping[str, Outcome], listed: Mapping[str, Reason]) -> dict[str, int]:
    """How many cases passed, and how many did not by kind of reason."""
    result: dict[str, int] = {}
    for name, outcome in outcomes.items():
        reason = listed.get(name)
        key = "passed" if outcome.stage == "pass" else reason.kind if reason else "failed"
        result[key] = result.get(key, 0) + 1
    return result


def unknown(listed: Iterable[str], names: Iterable[str]) -> list[str]:
    """Listed names that no case has."""
    return sorted(set(listed) - set(names))


def _short(message: str) -> str:
    return " ".join(message.split())[:300]
