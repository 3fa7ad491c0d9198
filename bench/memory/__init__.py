"""The memory service, beside what it is put beside."""

import sys
from pathlib import Path

# Weaviate is the one the tests start, from the programs of hack/cluster.
for _folder in ("tests/support", "hack"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / _folder))
