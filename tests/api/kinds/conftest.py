import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def helm() -> Path:
    path = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, timeout=240)
    assert path.returncode == 0, path.stderr
    return Path(path.stdout.strip())
