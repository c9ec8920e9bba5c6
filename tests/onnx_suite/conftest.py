"""Counts of ONNX's node suite at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

PROPERTY = "onnx_node_suite"
TITLES = {
    "passed": "passed",
    "failed": "failed",
    "lost": "attribute or type lost in conversion",
    "semantics": "RTen's semantics",
    "unsupported": "not supported",
    "refused": "refused by rten-convert",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, counts in getattr(report, "user_properties", []):
                if name == PROPERTY and report.when == "call":
                    total.update(counts)
    if total:
        parts = [f"{total[key]} {title}" for key, title in TITLES.items() if total[key]]
        terminalreporter.write_line(
            f"ONNX node suite: {sum(total.values())} cases: {', '.join(parts)}"
        )
