"""The search: what is tried next, what is kept, and what has to go again.

All problems are searched at once: each trial gives every problem its next candidate. A candidate
takes the place of the best choice so far only if it was clearly faster twice: in its trial, and
together with all others that were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rten_aot.records import Ratios
from rten_aot.targets.common.choices import Choice
from rten_aot.tuner.measure import MeasureError, Ratio

Measure: TypeAlias = Callable[[Mapping[str, Choice]], Mapping[str, Ratio]]
"""Compiles the model with choices by problems, and measures each problem against the untuned model.

Raises:
    MeasureError: the model did not run to its end, or not in time.
"""

CLEARLY = 0.98
"""A time is clearly less than another one if it is less than this part of it."""


@dataclass(frozen=True)
class Found:
    """A choice, and the time of its kernel over that of the untuned one."""

    choice: Choice
    ratio: float


@dataclass
class Search:
    """The state of a search."""

    candidates: Mapping[str, list[Choice]]
    """By problem, those not yet tried, the next one last; shrinks."""
    measure: Measure
    tried: dict[str, Ratios]
    """By problem, what is known of the choices that were tried; grows."""
    best: dict[str, Found] = field(default_factory=dict)
    """By problem, where one was found that is better than the cost model's."""

    def trial(self) -> list[str]:
        """Try the next candidate of every problem; returns the problems that it is better for.

        Raises:
            MeasureError: the candidates could not be measured; they will not be tried again.
        """
        following = {key: choices.pop() for key, choices in self.candidates.items() if choices}
        measured: Mapping[str, Ratio] = {}
        try:
            measured = self.measure({**self.choices, **following})
            confirmed = self._confirm(
                {k: c for k, c in following.items() if self._wins(k, measured.get(k))}
            )
        except MeasureError:
            self._note(following, measured)
            raise
        self._note(following, measured)
        return confirmed

    @property
    def choices(self) -> dict[str, Choice]:
        """The best ones."""
        return {key: found.choice for key, found in self.best.items()}

    def _note(self, tried: Mapping[str, Choice], measured: Mapping[str, Ratio]) -> None:
        for key, choice in tried.items():
            known = measured.get(key)
            ratio = None if known is None else known.median
            self.tried.setdefault(key, {})[str(choice)] = ratio

    def _wins(self, key: str, measured: Ratio | None) -> bool:
        """Whether a time is clearly less than that of the best choice so far."""
        best = self.best[key].ratio if key in self.best else 1.0
        return measured is not None and measured.high < CLEARLY * best

    def _confirm(self, winners: Mapping[str, Choice]) -> list[str]:
        """The problems whose winners win once more, all together."""
        if not winners:
            return []
        measured = self.measure({**self.choices, **winners})
        confirmed = [key for key in winners if self._wins(key, measured.get(key))]
        for key in confirmed:
            self.best[key] = Found(winners[key], measured[key].median)
        return confirmed


def settle(
    best: Mapping[str, Found],
    whole: Callable[[Mapping[str, Choice]], Ratio],
    measure: Measure,
) -> tuple[dict[str, Found], Ratio | None]:
    """Those choices with which the model is faster as a whole, and its time over the untuned one's.

    As long as it is not faster, choices whose kernels are not go; if all of them are, all go.
    """
    kept = dict(best)
    while kept:
        choices = {key: found.choice for key, found in kept.items()}
        result = whole(choices)
        if result.high < 1:
            return kept, result
        measured = measure(choices)
        faster = {
            key: Found(found.choice, measured[key].median)
            for key, found in kept.items()
            if key in measured and measured[key].high < 1
        }
        kept = faster if len(faster) < len(kept) else {}
    return {}, None
