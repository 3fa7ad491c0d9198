"""The operator process with shorter times, so that a test need not wait for them:

    HASTY='{"leadership.namespace_claims.CLAIM_SECONDS": 8}'.

The names are constants of `learnloop_operator.adapters`; everything else is `python -m learnloop_operator`. With
ARMED=false the kernel does not end it, however long it was stopped.
"""

import importlib
import json
import os
import sys

from learnloop_operator.__main__ import main
from learnloop_operator.adapters.leadership import dead_man_switch

if __name__ == "__main__":
    for place, value in json.loads(os.environ.get("HASTY", "{}")).items():
        module, constant = place.rsplit(".", 1)
        found = importlib.import_module(f"learnloop_operator.adapters.{module}")
        assert hasattr(found, constant), place
        setattr(found, constant, value)
    if not json.loads(os.environ.get("ARMED", "true")):
        dead_man_switch.wind_up = lambda seconds: None
    sys.exit(main())
