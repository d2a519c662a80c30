"""A plugin for pytest that lists the tests over `LIMIT` seconds of a processor, in all their steps and child processes.

    python -m pytest -p tests.support.processor_seconds -m "not slow"     # make slow-tests

A test's seconds include the shared fixtures that it is the first to need. Such a fixture moves to the next test once
this one is marked, so the list is for people and asserts nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator

import pytest

LIMIT = 0.2
_SECONDS: dict[str, float] = defaultdict(float)
_PROPERTY = "processor seconds"
_START = pytest.StashKey[float]()


def _read_clock() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give the report of each step its seconds of a processor."""
    report = yield
    now = _read_clock()
    report.user_properties.append((_PROPERTY, now - item.stash.get(_START, now)))
    item.stash[_START] = now
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the clock of a test."""
    item.stash[_START] = _read_clock()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the seconds of a step. With several processes this runs in the one that prints the summary, too."""
    _SECONDS[report.nodeid] += sum(float(str(value)) for name, value in report.user_properties if name == _PROPERTY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests over the limit, the longest first."""
    rows = sorted(((seconds, name) for name, seconds in _SECONDS.items() if seconds > LIMIT), reverse=True)
    terminalreporter.section(f"{len(rows)} of {len(_SECONDS)} tests took over {LIMIT} s of a processor")
    for seconds, name in rows:
        terminalreporter.write_line(f"{seconds:6.2f} {name}")
