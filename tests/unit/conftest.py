"""Programs that several unit tests ask."""

import shutil
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

from toolkit.commands import CommandFailed
from toolkit.debian_packages import unpacked

TORCH = find_spec("torch") is not None
collect_ignore = [] if TORCH else ["trainer/language"]
"""Folders whose conftest already imports torch."""
Report = pytest.CollectReport


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Report, Report]:
    """Skip the modules that import torch where `make check` made an environment without it."""
    report = yield
    if not TORCH and report.failed and "No module named 'torch'" in str(report.longrepr):
        reason = "Skipped: needs torch, which `make unit` installs"
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, reason)
    return report


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own, which evaluates PromQL over series that a test writes: on PATH, or of Debian's package."""
    if program := shutil.which("promtool"):
        return Path(program)
    try:
        return unpacked("prometheus", "usr/bin/promtool")
    except (CommandFailed, OSError) as error:
        pytest.skip(f"no promtool on PATH, and Debian's package cannot be fetched: {error}")
