"""``tune``: searches the choices for a model's problems, and keeps what it finds in a file."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rten_aot import driver, records
from rten_aot.diagnostics import Note, Progress
from rten_aot.errors import CompileError, TargetError
from rten_aot.files import check_writable
from rten_aot.format import read_model
from rten_aot.format.graph import Dim, Model
from rten_aot.records import Database
from rten_aot.runtime import TensorInfo, load
from rten_aot.targets import get_machine
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice
from rten_aot.targets.common.problems import Problem
from rten_aot.targets.cuda.target import Gpu
from rten_aot.tuner.candidates import candidates
from rten_aot.tuner.measure import Array, Bench, MeasureError, Ratio, Times
from rten_aot.tuner.search import Found, Search, settle

MakeInputs: TypeAlias = Callable[[Sequence[TensorInfo]], Sequence[Array]]
"""The arrays to measure with, for the inputs of the compiled model."""

NOTICEABLE = 0.01
"""Problems that take less than this part of the model's time are left alone."""
_FIRST_LIMIT = 900.0
"""Seconds that the first measurement may take; the others, a few times as long as that one."""
_TIMES_AS_LONG = 4.0
_EXTRA_SECONDS = 10.0


@dataclass(frozen=True)
class Plan:
    """What is to be tuned, and how."""

    model: Path
    target: str
    shapes: Mapping[str, Sequence[Dim]]
    dims: Mapping[str, int]
    inputs: MakeInputs
    trials: int
    """Candidates for each problem, those that were tried before included."""
    threads: int | None
    seconds: float
    """How long each measurement takes at least."""
    limit: float | None = None
    """Seconds after which no trial begins."""


@dataclass(frozen=True)
class Row:
    """What came of one problem."""

    key: str
    share: float
    """Of the time of all kernels of the untuned model."""
    before: float
    """Seconds of all its kernels in a run of the untuned model."""
    found: Found | None


@dataclass(frozen=True)
class Outcome:
    """What came of it all."""

    rows: Sequence[Row]
    """The problems with candidates, and those with records; the most expensive one first."""
    before: float
    """Seconds of a run of the untuned model."""
    ratio: float
    """The tuned model's time over that; 1 if they are the same."""


def tune(plan: Plan, file: Path, note: Note, progress: Progress) -> Outcome:
    """Search better choices for a model, go on where the last search stopped, write ``file``.

    The file is written after each trial. An interrupt ends the search, but what it found is still
    checked as a whole; another one ends that as well, and leaves the file as it is.

    Raises:
        CompileError: the model cannot be compiled or run, or the file is damaged.
        TargetError: this machine cannot run code for the target.
        OSError: a file cannot be read or written.
    """
    machine = get_machine(plan.target)
    if not machine.runs_here():
        raise TargetError(
            f"tuning measures code for {machine.name}, which this computer cannot run",
            hint="tune on a computer of that kind, and compile with its records anywhere",
        )
    if isinstance(machine, Gpu):
        raise TargetError("tuning is for CPUs; kernels for GPUs have no choices to measure")
    parsed = read_model(plan.model)
    database = records.read(file) if file.exists() else Database()
    check_writable(file)
    with tempfile.TemporaryDirectory(prefix="rten-aot-tune-") as folder:
        tuner = _Tuner(plan, parsed, machine, database, file, Path(folder), note, progress)
        return tuner.run()


class _Tuner:
    """One model being tuned."""

    def __init__(
        self,
        plan: Plan,
        parsed: Model,
        machine: Machine,
        database: Database,
        file: Path,
        folder: Path,
        note: Note,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._machine = machine
        self._database = database
        self._file = file
        self._folder = folder
        self._note = note
        self._progress = progress
        self._start = time.perf_counter()
        self._doing = "the untuned model"
        self._limit = _FIRST_LIMIT
        self._model = parsed
        self._plain = self._compile("plain", {}, profile=False)
        with load(self._plain, num_threads=plan.threads) as model:
            inputs = list(plan.inputs(model.inputs))
        self._untuned = self._compile("untuned", {}, profile=True)
        self._bench = Bench(inputs, plan.threads, plan.seconds)
        with load(self._untuned, num_threads=plan.threads) as model:
            self._steps, self._defaults = _problems(model.metadata["profile"])

    def run(self) -> Outcome:
        """Search, check, save."""
        base = self._baseline()
        seconds = base.medians()
        before = {key: float(seconds[steps].sum()) for key, steps in self._steps.items()}
        shares = {key: own / float(seconds.sum()) for key, own in before.items()}
        known = [r for r in self._database.of(self._machine) if r.key in self._steps]
        search = Search(
            {},
            self._measure,
            self._database.session(self._machine, self._plan.threads).ratios,
            {record.key: Found(record.choice, record.time_ratio) for record in known},
        )
        noticed = [key for key, share in shares.items() if share >= NOTICEABLE]
        search.candidates = {key: self._candidates(key, search) for key in noticed}
        self._note(
            f"{len(noticed)} of {len(self._steps)} problems take {NOTICEABLE:.0%} of the time or "
            f"more; {len(search.best)} records are known"
        )
        self._search(search)
        self._doing = "checking all choices together"
        best, result = self._settled(search.best)
        self._save(best)
        rows = [
            Row(key, shares[key], before[key], best.get(key))
            for key in sorted({*noticed, *search.best}, key=lambda key: -shares[key])
        ]
        if result is None:
            return Outcome(rows, base.whole().before, 1.0)
        return Outcome(rows, result.before, result.median)

    # -- the search -----------------------------------------------------------------------------

    def _candidates(self, key: str, search: Search) -> list[Choice]:
        """Those that are left, the next one last."""
        problem = Problem.parse(key)
        assert problem is not None, key
        every = candidates(self._machine, problem, self._defaults[key])
        tried = search.tried.get(key, {})
        planned = itertools.islice(every, self._plan.trials)
        return [c for c in planned if str(c) not in tried][::-1]

    def _search(self, search: Search) -> None:
        total = self._plan.trials
        took = 0.0
        try:
            while left := max(map(len, search.candidates.values()), default=0):
                begin = time.perf_counter()
                # The check at the end takes about as long as a trial.
                if self._plan.limit is not None and (
                    begin + 2 * took > self._start + self._plan.limit
                ):
                    self._note(f"time is up after {total - left} of {total} trials")
                    break
                self._doing = f"trial {total - left + 1} of {total}"
                self._trial(search)
                self._save(search.best)
                took = time.perf_counter() - begin
        except KeyboardInterrupt:
            self._note(f"interrupted in {self._doing}; checking what was found (again to leave)")

    def _trial(self, search: Search) -> None:
        try:
            won = search.trial()
        except MeasureError as err:
            self._note(f"{self._doing}: left out, {err}")
            return
        for key in won:
            found = search.best[key]
            self._note(f"{self._doing}: {found.ratio:.3f} of the time by {found.choice}: {key}")

    def _settled(self, best: Mapping[str, Found]) -> tuple[dict[str, Found], Ratio | None]:
        try:
            return settle(best, self._measure_whole, self._measure)
        except MeasureError as err:
            raise CompileError(
                f"{self._doing}: {err}",
                hint=f"{self._file} has what was found; tune again to check it",
            ) from err

    def _save(self, best: Mapping[str, Found]) -> None:
        found = {
            key: (best[key].choice, best[key].ratio) if key in best else None for key in self._steps
        }
        self._database.replace(self._machine, found)
        records.write(self._file, self._database)

    # -- compiling and measuring ----------------------------------------------------------------

    def _compile(self, name: str, choices: Mapping[str, Choice], *, profile: bool) -> Path:
        return driver.compile(
            self._model,
            self._folder / f"{name}.so",
            target=self._plan.target,
            shapes=self._plan.shapes,
            dims=self._plan.dims,
            progress=lambda stage, _seconds: self._show(stage),
            profile=profile,
            choices=choices,
        )

    def _show(self, stage: str) -> None:
        self._progress(f"{self._doing}: {stage}", time.perf_counter() - self._start)

    def _baseline(self) -> Times:
        """The untuned model against itself."""
        begin = time.perf_counter()
        self._show("measuring")
        try:
            times = self._bench.measure(
                self._untuned, self._untuned, limit=self._limit, profile=True
            )
        except MeasureError as err:
            raise CompileError(f"the untuned model cannot be measured: {err}") from err
        self._limit = _TIMES_AS_LONG * (time.perf_counter() - begin) + _EXTRA_SECONDS
        return times

    def _measure(self, choices: Mapping[str, Choice]) -> dict[str, Ratio]:
        library = self._compile("candidate", choices, profile=True)
        self._show("measuring")
        times = self._bench.measure(self._untuned, library, limit=self._limit, profile=True)
        return {key: times.of(steps) for key, steps in self._steps.items()}

    def _measure_whole(self, choices: Mapping[str, Choice]) -> Ratio:
        library = self._compile("tuned", choices, profile=False)
        self._show("measuring")
        return self._bench.measure(self._plain, library, limit=self._limit).whole()


def _problems(
    steps: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, list[int]], dict[str, Choice]]:
    """By problem, the numbers of the steps that solve it, and what the cost model chose."""
    numbers: dict[str, list[int]] = {}
    chosen: dict[str, Choice] = {}
    for number, step in enumerate(steps):
        if "problem" in step:
            numbers.setdefault(step["problem"], []).append(number)
            chosen[step["problem"]] = Choice.parse(step["choice"])
    return numbers, chosen
