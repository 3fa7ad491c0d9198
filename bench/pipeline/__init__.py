"""From a trajectory to a reward: how fast, and that nothing is lost on the way."""

import sys
from pathlib import Path

# The servers and tokens that the tests stand up are the ones measured here.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
