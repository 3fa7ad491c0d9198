import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def helm() -> Path:
    found = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, timeout=240)
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.strip())
