"""Counts of ONNX's node suite at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

# The sample's cases are among those of the whole suite, where that runs.
PROPERTY, SAMPLE_PROPERTY = "onnx_node_suite", "onnx_node_sample"
TITLES = {
    "passed": "passed",
    "failed": "failed",
    "lost": "attribute or type lost in conversion",
    "semantics": "RTen's semantics",
    "unsupported": "not supported",
    "refused": "refused by rten-convert",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total = _total(terminalreporter, PROPERTY) or _total(terminalreporter, SAMPLE_PROPERTY)
    if total:
        parts = [f"{total[key]} {title}" for key, title in TITLES.items() if total[key]]
        terminalreporter.write_line(
            f"ONNX node suite: {sum(total.values())} cases: {', '.join(parts)}"
        )


def _total(terminalreporter: pytest.TerminalReporter, wanted: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, counts in getattr(report, "user_properties", []):
                if name == wanted and report.when == "call":
                    total.update(counts)
    return total
