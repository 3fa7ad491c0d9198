"""The operator process with shorter times, so that a test need not wait for them:

    HASTY='{"kube.leader_lease.LEASE_SECONDS": 8}'.

The names are constants of `learnloop_operator`; everything else is `python -m learnloop_operator`.
"""

import importlib
import json
import os
import sys

from learnloop_operator.__main__ import main

if __name__ == "__main__":
    for place, value in json.loads(os.environ.get("HASTY", "{}")).items():
        module, constant = place.rsplit(".", 1)
        found = importlib.import_module(f"learnloop_operator.{module}")
        assert hasattr(found, constant), place
        setattr(found, constant, value)
    sys.exit(main())
