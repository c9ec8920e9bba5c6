"""``rten-aot tune`` on the example network, and ``compile --db`` with what it writes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rten_aot
from rten_aot import driver, records
from rten_aot.cli.tune import duration
from rten_aot.records import Database
from rten_aot.targets import get_machine
from rten_aot.targets.common.choices import Choice
from rten_aot.tuner.measure import Bench, MeasureError, Times
from tests.cli.conftest import Command

NATIVE = get_machine("llvm -mcpu=native")
CONV = "conv 16->32 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 groups 1 image 1x8x8"
FIRST = "conv 1->16 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 groups 1 image 1x8x8"
PRODUCT = "gemm 1x512x10"
WORDS = ("--dim", "batch=1", "--threads", "1", "--seconds", "0.1")


@pytest.fixture(scope="module")
def source(root: Path) -> Path:
    return root / "examples/digits/digits.rten"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tune.json"


def problems_of(out: str) -> list[str]:
    """Those in the table, in its order."""
    _, head, *rows, _ = out.splitlines()
    assert re.split(r"\s{2,}", head.strip()) == [
        "share", "ms before", "ms after", "ratio", "choice", "problem",
    ]  # fmt: skip
    return [re.split(r"\s{2,}", row.strip())[-1] for row in rows]


def test_from_end_to_end(command: Command, source: Path, file: Path, tmp_path: Path) -> None:
    done = command("tune", source, *WORDS, "--db", file, "--trials", "2")
    assert done.code == 0, done.err
    assert re.match(
        r"the model: [\d.]+ ms untuned, [\d.]+ ms tuned \(\d\.\d{3} of the time\)\n", done.out
    )
    problems = problems_of(done.out)
    assert CONV in problems
    assert "records are known\n" in done.err
    found = records.read(file)
    count = len(found.of(NATIVE))
    assert done.out.endswith(f"{file}: {count} of {len(problems)} problems have a better choice\n")
    tried = found.session(NATIVE, 1).ratios
    assert set(tried) == set(problems)
    assert list(tried[CONV]) == ["algorithm direct", "width 16"][: len(tried[CONV])]
    for ratios in tried.values():
        assert 1 <= len(ratios) <= 2
        assert all(ratio is not None and ratio > 0 for ratio in ratios.values())

    done = command("compile", source, "-o", tmp_path / "tuned.so", "-mcpu=native", "--dim",
                   "batch=1", "--db", file)  # fmt: skip
    assert done.code == 0, done.err
    model = rten_aot.load(tmp_path / "tuned.so", num_threads=1)
    assert model(np.zeros((1, 1, 8, 8), np.float32))[0].shape == (1, 10)


class Clock:
    """Stands in for compilation and measurement.

    Candidates take ``ratios`` of the untuned time, one measurement after the other.
    """

    def __init__(self, untuned: Mapping[bool, Path]) -> None:
        self.ratios: list[float | BaseException] = []
        self.calls = 0
        self.compiled: list[Mapping[str, Choice]] = []
        self._untuned = untuned

    def compile(
        self,
        _model: object,
        output: Path,
        *,
        progress: Callable[[str, float], None],
        profile: bool,
        choices: Mapping[str, Choice],
        **_options: object,
    ) -> Path:
        progress("linking", 0.0)
        self.compiled.append(dict(choices))
        shutil.copy(self._untuned[profile], output)
        return output

    def measure(self, before: Path, _after: Path, *, limit: float, profile: bool = False) -> Times:
        self.calls += 1
        assert limit > 1
        ratio = self.ratios.pop(0)
        if isinstance(ratio, BaseException):
            raise ratio
        steps = len(rten_aot.load(before).metadata["profile"]) if profile else 1
        nanoseconds = np.full((2, 20, steps), 1000)
        nanoseconds[1] = int(1000 * ratio)
        return Times(nanoseconds.sum(axis=2) * 1e-9, nanoseconds)


@pytest.fixture(scope="module")
def untuned(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The network, by whether its library times its steps."""
    folder = tmp_path_factory.mktemp("untuned")
    options: dict[str, Any] = {"target": "llvm -mcpu=native", "dims": {"batch": 1}}
    return {
        profile: rten_aot.compile(source, folder / f"{profile}.so", profile=profile, **options)
        for profile in (False, True)
    }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, untuned: dict[bool, Path]) -> Clock:
    fake = Clock(untuned)
    monkeypatch.setattr(driver, "compile", fake.compile)
    monkeypatch.setattr(
        Bench, "measure", lambda _self, *args, **names: fake.measure(*args, **names)
    )
    return fake


def choices_in(file: Path) -> dict[str, Choice]:
    return {r.key: r.choice for r in records.read(file).of(NATIVE)}


def test_what_is_faster_is_kept(command: Command, source: Path, file: Path, clock: Clock) -> None:
    # The untuned model, two trials (the second one confirmed), the check of the whole.
    clock.ratios = [1.0, 1.2, 0.8, 0.85, 0.9]
    done = command("tune", source, *WORDS, "--db", file, "--trials", "2", "-v")
    assert done.code == 0, done.err
    assert clock.calls == 5
    assert choices_in(file)[CONV] == Choice(width=16)
    assert "tuned (0.900 of the time)" in done.out
    assert f"trial 2 of 2: 0.850 of the time by width 16: {CONV}\n" in done.err
    assert "s  trial 2 of 2: linking\n" in done.err
    assert [sorted(choices) for choices in clock.compiled[:3]] == [[], [], [FIRST, CONV, PRODUCT]]
    assert clock.compiled[3][CONV] == clock.compiled[4][CONV] == Choice(width=16)
    row = next(line for line in done.out.splitlines() if line.endswith(CONV))
    assert re.split(r"\s{2,}", row.strip())[1:-1] == ["0.0010", "0.0009", "0.850", "width 16"]

    # All trials are done: what is known is checked once more.
    clock.ratios, clock.calls = [1.0, 0.95], 0
    before = file.read_bytes()
    done = command("tune", source, *WORDS, "--db", file, "--trials", "2")
    assert (done.code, clock.calls) == (0, 2)
    assert file.read_bytes() == before
    assert "tuned (0.950 of the time)" in done.out

    # More trials go on with the third candidate; a whole that is no faster loses its records.
    clock.ratios = [1.0, 1.1, 1.01, 1.01]
    done = command("tune", source, *WORDS, "--db", file, "--trials", "3")
    assert done.code == 0
    assert choices_in(file) == {}
    assert len(records.read(file).session(NATIVE, 1).ratios[CONV]) == 3
    assert "tuned (1.000 of the time)" in done.out
    assert f"{file}: 0 of 3 problems have a better choice" in done.out


def test_interrupted(command: Command, source: Path, file: Path, clock: Clock) -> None:
    """What was found before is still checked as a whole."""
    clock.ratios = [1.0, 0.8, 0.8, KeyboardInterrupt(), 0.9]
    done = command("tune", source, *WORDS, "--db", file, "--trials", "9")
    assert done.code == 0
    assert "interrupted in trial 2 of 9; checking what was found" in done.err
    assert choices_in(file)[CONV] == Choice("direct")
    assert len(records.read(file).session(NATIVE, 1).ratios[CONV]) == 1


def test_interrupted_twice(command: Command, source: Path, file: Path, clock: Clock) -> None:
    clock.ratios = [1.0, 0.8, 0.8, KeyboardInterrupt(), KeyboardInterrupt()]
    assert command("tune", source, *WORDS, "--db", file, "--trials", "9").code == 130
    assert choices_in(file)[CONV] == Choice("direct")


def test_a_time_limit(command: Command, source: Path, file: Path, clock: Clock) -> None:
    clock.ratios = [1.0]
    done = command("tune", source, *WORDS, "--db", file, "--trials", "9", "--time", "0.001")
    assert done.code == 0
    assert "time is up after 0 of 9 trials" in done.err
    assert records.read(file).session(NATIVE, 1).ratios == {}


def test_candidates_that_fail(command: Command, source: Path, file: Path, clock: Clock) -> None:
    clock.ratios = [1.0, MeasureError("took longer than 13 s"), 0.8, 0.8, 0.9]
    done = command("tune", source, *WORDS, "--db", file, "--trials", "2")
    assert done.code == 0
    assert "trial 1 of 2: left out, took longer than 13 s" in done.err
    ratios = records.read(file).session(NATIVE, 1).ratios[CONV]
    assert ratios == {"algorithm direct": None, "width 16": 0.8}


def test_models_that_fail(command: Command, source: Path, file: Path, clock: Clock) -> None:
    clock.ratios = [MeasureError("ended by signal 9")]
    done = command("tune", source, *WORDS, "--db", file)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "rten-aot: error: the untuned model cannot be measured: ended by signal 9\n"
    )


def test_other_records_stay(command: Command, source: Path, file: Path, clock: Clock) -> None:
    made = Database()
    made.replace(NATIVE, {"gemm 7x7x7": (Choice(rows=3), 0.5), PRODUCT: (Choice(width=8), 0.7)})
    made.replace(get_machine("x86-64-v2"), {CONV: (Choice(rows=3), 0.5)})
    records.write(file, made)
    clock.ratios = [1.0, 1.1, 0.9]
    assert command("tune", source, *WORDS, "--db", file, "--trials", "1").code == 0
    assert choices_in(file) == {"gemm 7x7x7": Choice(rows=3), PRODUCT: Choice(width=8)}
    assert len(records.read(file).records) == 3


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "the following arguments are required: --db"),
        (
            ["--db", "t.json", "-O2"],
            2,
            "argument -O: there is nothing to choose below -O3, got -O2",
        ),
        (["--db", "t.json", "--time", "soon"], 2, '"soon" is no time like 90s, 10m or 1h'),
        (["--db", "t.json", "--time", "0"], 2, '"0" is no time like 90s, 10m or 1h'),
        (["--db", "t.json", "--trials", "0"], 2, '"0" is not a positive number'),
        (["--db", "t.json", "--trails", "3"], 2, 'unknown option "--trails"; did you mean "--tri'),
        (
            ["--db", "t.json", "--target", "cortex-a72"],
            1,
            "tuning measures code for cortex-a72, which this computer cannot run\n"
            "hint: tune on a computer of that kind",
        ),
        (["--db", "t.json", "--target", "cuda"], 1, "tuning is for CPUs; kernels for GPUs have no"),
        (["--db", "no/t.json"], 1, "no: the folder does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors(
    command: Command,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "cortex-a72" in words and get_machine("cortex-a72").runs_here():
        pytest.skip("it can run here")
    done = command("tune", source, *words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_not_overwritten(command: Command, source: Path, file: Path) -> None:
    file.write_text("{}")
    done = command("tune", source, *WORDS, "--db", file)
    assert (done.code, done.err) == (
        1, f"rten-aot: error: {file}: no file of tuning records\n",
    )  # fmt: skip
    assert file.read_text() == "{}"


def test_sizes_must_be_known(command: Command, source: Path, file: Path) -> None:
    done = command("tune", source, "--db", file)
    assert done.code == 1
    assert 'input "input" has the free dimensions [batch, 1, 8, 8]\nhint: give' in done.err
    assert not file.exists()


def test_durations() -> None:
    assert [duration(t) for t in ("90", "90s", "10m", "1.5h")] == [90, 90, 600, 5400]


# -- compile --db -----------------------------------------------------------------------------


def compiled(command: Command, source: Path, output: Path, *words: Any) -> tuple[bytes, str, str]:
    """What was written, and standard output and error."""
    sizes = ("-mcpu=native", "--dim", "batch=1")
    done = command("compile", source, "-o", output, *sizes, *words)
    assert done.code == 0, done.err
    return output.read_bytes(), done.out, done.err


def test_records_are_used(command: Command, source: Path, file: Path, tmp_path: Path) -> None:
    made = Database()
    fields = Choice("direct", width=16, rows=5)
    made.replace(NATIVE, {CONV: (fields, 0.9), "gemm 7x7x7": (Choice(), 0.9)})
    records.write(file, made)
    output = tmp_path / "model.so"
    plain, _, _ = compiled(command, source, output)
    tuned, out, err = compiled(command, source, output, "--db", file, "--explain")
    assert err == ""
    assert f"\n{CONV}: algorithm direct (tuned), width 16 (tuned)\n" in out
    assert f"{CONV}: algorithm direct, width 16, rows 5 (tuned), run 1 (" in out
    assert f"\n{FIRST}: algorithm direct (too few channels for Winograd), width 16 (" in out
    assert "\ntuning: 1 of 2 records are of problems in this model\n" in out
    assert tuned != plain
    assert compiled(command, source, output, "--db", file)[0] == tuned

    x = np.random.default_rng(0).standard_normal((1, 1, 8, 8), np.float32)
    (result,) = rten_aot.load(output)(x)
    compiled(command, source, tmp_path / "plain.so")
    np.testing.assert_allclose(result, rten_aot.load(tmp_path / "plain.so")(x)[0], atol=1e-5)


def test_records_of_others_change_nothing(
    command: Command, source: Path, file: Path, tmp_path: Path
) -> None:
    made = Database()
    made.replace(NATIVE, {"gemm 7x7x7": (Choice(rows=3), 0.9)})
    made.replace(get_machine("x86-64-v2"), {CONV: (Choice("direct"), 0.9)})
    records.write(file, made)
    output = tmp_path / "model.so"
    plain, _, _ = compiled(command, source, output)
    other, _, err = compiled(command, source, output, "--db", file)
    assert other == plain
    assert err == (
        f"warning: {file}: 1 of 2 records not used, being for other targets: "
        f"x86-64-v2 (rten-aot {rten_aot.__version__})\n"
    )
    with pytest.warns(UserWarning, match="1 of 2 records not used") as caught:
        rten_aot.compile(source, output, target="llvm -mcpu=native", dims={"batch": 1}, db=file)
    assert caught[0].filename == __file__


def test_records_of_no_use(command: Command, source: Path, file: Path, tmp_path: Path) -> None:
    made = Database()
    made.replace(NATIVE, {CONV: (Choice(width=3), 0.9)})
    records.write(file, made)
    words = ("compile", source, "-o", tmp_path / "model.so", "--dim", "batch=1", "--db", file)
    done = command(*words, "-mcpu=native")
    assert done.code == 1
    assert f'error: tuning record "{CONV}", field "width": 3 is no whole number of' in done.err
    done = command(*words, "-mcpu=native", "-O1")
    assert done.code == 1
    assert "error: tuning records are of use at -O3 only, not at -O1\nhint: " in done.err
    done = command(*words, "--target", "x86-64-v2")
    assert done.code == 1
    assert "no record is for x86-64-v2 and rten-aot" in done.err
    done = command(*words[:-1], tmp_path / "none.json")
    assert done.code == 1
    assert done.err == f"rten-aot: error: {tmp_path / 'none.json'}: No such file or directory\n"


def test_profiles_name_problems(untuned: dict[bool, Path]) -> None:
    steps = rten_aot.load(untuned[True]).metadata["profile"]
    named = {s["problem"]: Choice.parse(s["choice"]) for s in steps if "problem" in s}
    assert set(named) == {FIRST, CONV, PRODUCT}
    assert named[CONV].algorithm == "winograd"
    assert all(("conv" in s["kernel"] or "gemm" in s["kernel"]) == ("problem" in s) for s in steps)
