"""Runs the operator with shorter times: HASTY='{"kube.leader_lease.LEASE_SECONDS": 8}'.

The names are constants of `learnloop_operator`, set before any other module imports them; everything else is
`python -m learnloop_operator`.
"""

import importlib
import json
import os
import sys

if __name__ == "__main__":
    for place, value in json.loads(os.environ.get("HASTY", "{}")).items():
        module_name, constant = place.rsplit(".", 1)
        module = importlib.import_module(f"learnloop_operator.{module_name}")
        assert hasattr(module, constant), place
        setattr(module, constant, value)
    from learnloop_operator.__main__ import main

    sys.exit(main())
