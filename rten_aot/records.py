"""Files of tuning records: which choices were found to be fast, on which machine.

A file is JSON. Its records hold for one target and one version of rten-aot, since the next version
may compute a problem in another way. What was tried besides is kept with them, so that tuning goes
on where it was stopped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import rten_aot
from rten_aot.diagnostics import Note
from rten_aot.errors import CompileError
from rten_aot.files import new_file
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice
from rten_aot.targets.common.problems import Problem

FORMAT = 1

Ratios: TypeAlias = dict[str, float | None]
"""By the text of a choice, its time over that of the untuned one; None if it could not be run."""


@dataclass(frozen=True)
class Record:
    """The best choice that was found for a problem."""

    target: str
    version: str
    """That of rten-aot, which found it."""
    key: str
    choice: Choice
    time_ratio: float
    """Time of the kernel over that of the untuned one."""


@dataclass
class Session:
    """What was tried for one target by one version with a number of threads (None: the default)."""

    target: str
    version: str
    threads: int | None
    ratios: dict[str, Ratios] = field(default_factory=dict)
    """By the keys of problems."""


@dataclass
class Database:
    """What a file holds."""

    records: list[Record] = field(default_factory=list)
    tried: list[Session] = field(default_factory=list)

    def of(self, machine: Machine) -> list[Record]:
        """The records for a target and this version."""
        return [record for record in self.records if _is_of(record, target_of(machine))]

    def replace(self, machine: Machine, best: Mapping[str, tuple[Choice, float] | None]) -> None:
        """Put choices and their time ratios in place of the records for the same problems."""
        target = target_of(machine)
        kept = [r for r in self.records if not (_is_of(r, target) and r.key in best)]
        found = ((key, *choice) for key, choice in best.items() if choice is not None)
        self.records = kept + [Record(target, rten_aot.__version__, *f) for f in found]

    def session(self, machine: Machine, threads: int | None) -> Session:
        """What this version has tried for a target; a new session if it has tried nothing."""
        target = target_of(machine)
        for session in self.tried:
            if _is_of(session, target) and session.threads == threads:
                return session
        self.tried.append(Session(target, rten_aot.__version__, threads))
        return self.tried[-1]


def target_of(machine: Machine) -> str:
    """What records call a machine: its name and the features that code for it may use."""
    return " ".join([machine.name, *machine.features])


def load_choices(path: Path, machine: Machine, warn: Note) -> dict[str, Choice]:
    """The choices in a file for a machine; ``warn`` is told of the records that are left out.

    Raises:
        CompileError: the file is damaged, or has no record for this target and version.
        OSError: the file cannot be read.
    """
    database = read(path)
    target = target_of(machine)
    if not database.records:
        warn(f"{path}: has no records, so nothing is tuned")
    fitting = database.of(machine)
    was_tuned = any(_is_of(session, target) for session in database.tried)
    left_out = [r for r in database.records if not _is_of(r, target)]
    if left_out and not fitting and not was_tuned:
        raise CompileError(
            f"{path}: no record is for {machine.name} and rten-aot {rten_aot.__version__}; "
            f"they are for {_origins(left_out)}",
            hint="tune for this target, or leave out --db",
        )
    for what, records in (
        ("for other targets", [r for r in left_out if r.target != target]),
        ("by other versions of rten-aot", [r for r in left_out if r.target == target]),
    ):
        if records:
            count = f"{len(records)} of {len(database.records)} records"
            warn(f"{path}: {count} not used, being {what}: {_origins(records)}")
    return {record.key: record.choice for record in fitting}


def _is_of(entry: Record | Session, target: str) -> bool:
    return (entry.target, entry.version) == (target, rten_aot.__version__)


def _origins(records: Sequence[Record]) -> str:
    """Where records come from; targets are told by their names, where those tell them apart."""
    targets = {r.target for r in records}
    names = {t.partition(" ")[0] for t in targets}
    short = len(names) == len(targets)
    shown = {
        (r.target.partition(" ")[0] if short else r.target) + f" (rten-aot {r.version})"
        for r in records
    }
    return ", ".join(sorted(shown))


def read(path: Path) -> Database:
    """The content of a file.

    Raises:
        CompileError: the file is none of these, or damaged.
        OSError: the file cannot be read.
    """
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as err:
        raise CompileError(f"{path}: no file of tuning records: {err}") from err
    try:
        return _database(content)
    except _Damage as err:
        raise CompileError(f"{path}: {err}") from err


class _Damage(Exception):
    """What is wrong with a file, and where."""


def _database(content: Any) -> Database:
    if not isinstance(content, dict) or "format" not in content:
        raise _Damage("no file of tuning records")
    if content["format"] != FORMAT:
        raise _Damage(f"has format {content['format']!r}, this version reads {FORMAT}")
    database = Database(
        [_record(e, where) for e, where in _entries(content, "records")],
        [_session(e, where) for e, where in _entries(content, "tried")],
    )
    seen: set[tuple[str, str, str]] = set()
    for record in database.records:
        identity = (record.target, record.version, record.key)
        if identity in seen:
            raise _Damage(f'two records are for "{record.key}"')
        seen.add(identity)
    return database


def _entries(content: Mapping[str, Any], name: str) -> Iterator[tuple[Any, str]]:
    entries = content.get(name)
    if not isinstance(entries, list):
        raise _Damage(f'"{name}" is no list')
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise _Damage(f"{name}[{number}] is no object")
        yield entry, f"{name}[{number}]"


def _record(entry: Mapping[str, Any], where: str) -> Record:
    key = _get(entry, "key", str, where)
    if Problem.parse(key) is None:
        raise _Damage(f'{where}: "{key}" is the key of no problem')
    where = f'tuning record "{key}"'
    try:
        choice = Choice.parse(_get(entry, "choice", dict, where))
    except ValueError as err:
        raise _Damage(f"{where}: {err}") from err
    ratio = _get(entry, "time_ratio", float, where)
    if not 0 < ratio < math.inf:
        raise _Damage(f'{where}: "time_ratio" is {ratio}')
    return Record(
        _get(entry, "target", str, where), _get(entry, "rten_aot", str, where), key, choice, ratio
    )


def _session(entry: Mapping[str, Any], where: str) -> Session:
    threads = entry.get("threads")
    if threads is not None:
        threads = _get(entry, "threads", int, where)
    ratios = _get(entry, "ratios", dict, where)
    for key, tried in ratios.items():
        values = list(tried.values()) if isinstance(tried, dict) else [""]
        if not all(value is None or isinstance(value, (int, float)) for value in values):
            raise _Damage(f'{where}, "{key}": no numbers by choices')
    return Session(
        _get(entry, "target", str, where), _get(entry, "rten_aot", str, where), threads, ratios
    )


def _get(entry: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = entry.get(name)
    kinds = (int, float) if kind is float else (kind,)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise _Damage(f'{where}: "{name}" is {"missing" if name not in entry else repr(value)}')
    return value


def write(path: Path, database: Database) -> None:
    """Write a file as a whole or not at all; the same content gives the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    with new_file(path) as temporary:
        temporary.write_text(_text(database), encoding="utf-8")


def _text(database: Database) -> str:
    """JSON with a line for each record, and for each problem that choices were tried for."""
    records = sorted(database.records, key=lambda r: (r.key, r.target, r.version))
    tried = sorted(database.tried, key=lambda s: (s.target, s.version, s.threads or 0))
    lines = [
        "{",
        f' "format": {FORMAT},',
        ' "records": [',
        *_joined(_line(_facts(record)) for record in records),
        " ],",
        ' "tried": [',
        *_joined(_session_text(session) for session in tried),
        " ]",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _facts(record: Record) -> dict[str, Any]:
    return {
        "key": record.key,
        "choice": record.choice.fields,
        "time_ratio": round(record.time_ratio, 4),
        "rten_aot": record.version,
        "target": record.target,
    }


def _session_text(session: Session) -> str:
    head = {"target": session.target, "rten_aot": session.version, "threads": session.threads}
    ratios = (
        f"{json.dumps(key, ensure_ascii=False)}: "
        + _line({c: r if r is None else round(r, 4) for c, r in tried.items()})
        for key, tried in sorted(session.ratios.items())
    )
    body = "\n".join(_joined(ratios, indent="   "))
    return _line(head)[:-1] + ', "ratios": {' + (f"\n{body}\n  " if body else "") + "}}"


def _line(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False)


def _joined(texts: Iterator[str], indent: str = "  ") -> list[str]:
    every = [indent + text for text in texts]
    return [line + "," for line in every[:-1]] + every[-1:]
