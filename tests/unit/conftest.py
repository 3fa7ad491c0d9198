"""Programs that several unit tests ask."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

from toolkit.debian_packages import unpacked


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own, which evaluates PromQL over series that a test writes: on PATH, or of Debian's package."""
    found = shutil.which("promtool")
    return Path(found) if found else unpacked("prometheus", "usr/bin/promtool")
