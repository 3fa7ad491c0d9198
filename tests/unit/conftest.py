"""Programs that several unit tests ask."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

from toolkit.commands import CommandFailed
from toolkit.debian_packages import unpacked


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own, which evaluates PromQL over series that a test writes: on PATH, or of Debian's package."""
    if program := shutil.which("promtool"):
        return Path(program)
    try:
        return unpacked("prometheus", "usr/bin/promtool")
    except (CommandFailed, OSError) as error:
        pytest.skip(f"no promtool on PATH, and Debian's package cannot be fetched: {error}")
