"""Files of tuning records: what they hold, how they are written, and what is said of bad ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import rten_aot
from rten_aot import files, records
from rten_aot.errors import CompileError
from rten_aot.records import Database, Session
from rten_aot.targets import get_machine
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice

V3 = get_machine("x86-64-v3")
V4 = get_machine("x86-64-v4")
GEMM = "gemm 1x2x32"
OTHER = "gemm 3x2x32"


def database() -> Database:
    """Two records and some trials."""
    made = Database()
    made.replace(V3, {OTHER: (Choice(rows=3, ahead=True), 0.91239), GEMM: (Choice(width=8), 0.5)})
    made.session(V3, 2).ratios.update({OTHER: {"rows 3": 0.91239, "run 2": None}, GEMM: {}})
    return made


def text_of(made: Database, path: Path) -> str:
    records.write(path, made)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tune.json"


def test_written_and_read(file: Path) -> None:
    text = text_of(database(), file)
    assert text.startswith(
        '{\n "format": 1,\n "records": [\n  {"key": "gemm 1x2x32", "choice": {"wi'
    )
    assert len(text.splitlines()) == 13
    read = records.read(file)
    assert [(r.key, r.choice, r.time_ratio) for r in read.records] == [
        (GEMM, Choice(width=8), 0.5),
        (OTHER, Choice(rows=3, ahead=True), 0.9124),
    ]
    assert {(r.target, r.version) for r in read.records} == {
        (records.target_of(V3), rten_aot.__version__)
    }
    assert read.session(V3, 2).ratios == {OTHER: {"rows 3": 0.9124, "run 2": None}, GEMM: {}}
    assert text_of(read, file) == text
    assert sorted(file.parent.iterdir()) == [file]


def test_the_order_of_finding_does_not_show(file: Path) -> None:
    turned = Database()
    turned.session(V3, 2).ratios.update({GEMM: {}, OTHER: {"rows 3": 0.91239, "run 2": None}})
    turned.replace(V3, {GEMM: (Choice(width=8), 0.5)})
    turned.replace(V3, {OTHER: (Choice(rows=3, ahead=True), 0.91239)})
    assert text_of(turned, file) == text_of(database(), file)


def test_an_empty_file(file: Path) -> None:
    text = text_of(Database(), file)
    assert json.loads(text) == {"format": 1, "records": [], "tried": []}
    assert records.read(file) == Database()


def test_records_are_replaced_by_problem_and_target() -> None:
    made = database()
    made.replace(V4, {GEMM: (Choice(rows=5), 0.7)})
    made.replace(V3, {GEMM: None, "gemm 9x9x9": None})
    assert [(r.key, r.choice) for r in made.of(V3)] == [(OTHER, Choice(rows=3, ahead=True))]
    assert [(r.key, r.choice) for r in made.of(V4)] == [(GEMM, Choice(rows=5))]


def test_sessions_are_told_apart_by_target_and_threads() -> None:
    made = Database()
    first = made.session(V3, 2)
    first.ratios[GEMM] = {"rows 3": 1.0}
    assert made.session(V3, 2) is first
    assert made.session(V3, 1).ratios == {}
    assert made.session(V4, 2).ratios == {}
    assert made.session(V3, None).ratios == {}
    assert len(made.tried) == 4


def test_a_target_is_name_and_features() -> None:
    machine = Machine("cpu +fast", "x86_64-unknown-linux-gnu", "cpu", features=("avx2", "fma"))
    assert records.target_of(machine) == "cpu +fast avx2 fma"


# -- for a compilation ------------------------------------------------------------------------


def load(file: Path, made: Database, machine: Machine) -> tuple[dict[str, Choice], list[str]]:
    records.write(file, made)
    lines: list[str] = []
    return records.load_choices(file, machine, lines.append), lines


def of_another_version(made: Database) -> Database:
    made.records = [
        records.Record(r.target, "0.0.1", r.key, r.choice, r.time_ratio) for r in made.records
    ]
    made.tried = [Session(s.target, "0.0.1", s.threads, s.ratios) for s in made.tried]
    return made


def test_all_records_fit(file: Path) -> None:
    assert load(file, database(), V3) == (
        {GEMM: Choice(width=8), OTHER: Choice(rows=3, ahead=True)},
        [],
    )


def test_what_is_left_out_is_told(file: Path) -> None:
    made = of_another_version(database())
    made.replace(V3, {GEMM: (Choice(width=16), 0.5)})
    made.replace(V4, {OTHER: (Choice(rows=5), 0.7)})
    choices, lines = load(file, made, V3)
    assert choices == {GEMM: Choice(width=16)}
    assert lines == [
        f"{file}: 1 of 4 records not used, being for other targets: "
        f"x86-64-v4 (rten-aot {rten_aot.__version__})",
        f"{file}: 2 of 4 records not used, being by other versions of rten-aot: "
        "x86-64-v3 (rten-aot 0.0.1)",
    ]


@pytest.mark.parametrize(
    ("made", "origins"),
    [
        (database(), f"x86-64-v3 (rten-aot {rten_aot.__version__})"),
        (of_another_version(database()), "x86-64-v3 (rten-aot 0.0.1)"),
    ],
    ids=["target", "version"],
)
def test_no_record_fits(file: Path, made: Database, origins: str) -> None:
    machine = V4 if "0.0.1" not in origins else V3
    with pytest.raises(CompileError) as caught:
        load(file, made, machine)
    assert str(caught.value) == (
        f"{file}: no record is for {machine.name} and rten-aot {rten_aot.__version__}; "
        f"they are for {origins}\nhint: tune for this target, or leave out --db"
    )


def test_targets_of_one_name_are_told_apart(file: Path) -> None:
    one, other = (
        Machine("cpu", "x86_64-unknown-linux-gnu", "cpu", features=f) for f in (("a",), ("b",))
    )
    made = Database()
    for machine in (one, other):
        made.replace(machine, {GEMM: (Choice(rows=3), 0.5)})
    with pytest.raises(CompileError, match=r"they are for cpu a \(rten-aot .*\), cpu b \("):
        load(file, made, V3)


def test_tuning_may_have_found_nothing(file: Path) -> None:
    """The cost model's choices are the best ones then, which is no error."""
    choices, lines = load(file, Database(), V3)
    assert (choices, lines) == ({}, [f"{file}: has no records, so nothing is tuned"])
    made = database()
    made.session(V4, None)
    choices, lines = load(file, made, V4)
    assert choices == {}
    assert lines == [
        f"{file}: 2 of 2 records not used, being for other targets: "
        f"x86-64-v3 (rten-aot {rten_aot.__version__})"
    ]


# -- damage -----------------------------------------------------------------------------------

RECORD = {
    "key": GEMM, "choice": {"rows": 3}, "time_ratio": 0.9, "rten_aot": "0.1.0", "target": "cpu",
}  # fmt: skip
SESSION = {"target": "cpu", "rten_aot": "0.1.0", "threads": 1, "ratios": {GEMM: {"rows 3": 0.9}}}


def without(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != name}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no file of tuning records: Expecting value: line 1 column 1 (char 0)"),
        ('{"format": 1,', "no file of tuning records: Expecting property name"),
        ("[" * 100_000, "no file of tuning records: "),
        ("\xff", "no file of tuning records: "),
        ("[]", "no file of tuning records"),
        ("{}", "no file of tuning records"),
        ({"format": 2, "records": [], "tried": []}, "has format 2, this version reads 1"),
        ({"format": "1"}, "has format '1', this version reads 1"),
        ({"format": 1, "tried": []}, '"records" is no list'),
        ({"format": 1, "records": {}, "tried": []}, '"records" is no list'),
        ({"format": 1, "records": []}, '"tried" is no list'),
        ([3], "records[0] is no object"),
        ([without(RECORD, "key")], 'records[0]: "key" is missing'),
        ([RECORD | {"key": 3}], 'records[0]: "key" is 3'),
        ([RECORD | {"key": "gemm"}], 'records[0]: "gemm" is the key of no problem'),
        ([without(RECORD, "choice")], f'tuning record "{GEMM}": "choice" is missing'),
        ([RECORD | {"choice": []}], f'tuning record "{GEMM}": "choice" is []'),
        ([RECORD | {"choice": {"rows": "3"}}], f'tuning record "{GEMM}": "rows" cannot be \'3\''),
        ([RECORD | {"choice": {"row": 3}}], f'tuning record "{GEMM}": "row" is no choice; choices'),
        ([RECORD | {"time_ratio": True}], f'tuning record "{GEMM}": "time_ratio" is True'),
        ([RECORD | {"time_ratio": 0}], f'tuning record "{GEMM}": "time_ratio" is 0'),
        ([RECORD | {"time_ratio": math.nan}], f'tuning record "{GEMM}": "time_ratio" is nan'),
        ([without(RECORD, "target")], f'tuning record "{GEMM}": "target" is missing'),
        ([RECORD | {"rten_aot": None}], f'tuning record "{GEMM}": "rten_aot" is None'),
        ([RECORD, RECORD], f'two records are for "{GEMM}"'),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_damaged_files(file: Path, content: Any, message: str) -> None:
    if isinstance(content, list):
        content = {"format": 1, "records": content, "tried": []}
    if isinstance(content, str):
        file.write_bytes(content.encode("latin-1"))
    else:
        file.write_text(json.dumps(content))
    with pytest.raises(CompileError) as caught:
        records.read(file)
    assert str(caught.value).startswith(f"{file}: {message}")


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (None, "tried[0] is no object"),
        (without(SESSION, "target"), 'tried[0]: "target" is missing'),
        (SESSION | {"threads": "1"}, "tried[0]: \"threads\" is '1'"),
        (SESSION | {"ratios": []}, 'tried[0]: "ratios" is []'),
        (SESSION | {"ratios": {GEMM: []}}, f'tried[0], "{GEMM}": no numbers by choices'),
        (SESSION | {"ratios": {GEMM: {"rows 3": "1"}}}, f'tried[0], "{GEMM}": no numbers by'),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_damaged_trials(file: Path, session: Any, message: str) -> None:
    file.write_text(json.dumps({"format": 1, "records": [], "tried": [session]}))
    with pytest.raises(CompileError) as caught:
        records.read(file)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        records.read(tmp_path / "none.json")
    with pytest.raises(FileNotFoundError):
        records.write(tmp_path / "none" / "tune.json", Database())


def test_a_file_is_replaced_as_a_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = text_of(database(), file)

    def fail(*_names: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        records.write(file, Database())
    assert file.read_text(encoding="utf-8") == before
    assert sorted(file.parent.iterdir()) == [file]
