"""Runs a learnloop program as a node with another clock would: `python -m testing.language.elsewhere SECONDS MODULE`.

What the program's own modules read as the time of day is SECONDS ahead; the kernel's clock stays as it is. The folder
of the pod's service account is the one that LEARNLOOP_TEST_ACCOUNT names.
"""

import datetime as dates
import importlib
import os
import sys
import time
from pathlib import Path

import learnloop_serving.settings

ACCOUNT = "LEARNLOOP_TEST_ACCOUNT"


def shift(seconds: float) -> None:
    """Set the time of day of all learnloop modules that are imported by now."""
    real_time = time.time
    time.time = lambda: real_time() + seconds

    class Shifted(dates.datetime):
        @classmethod
        def now(cls, tz: dates.tzinfo | None = None) -> dates.datetime:  # type: ignore[override]
            return dates.datetime.fromtimestamp(time.time(), tz)

    for name, module in list(sys.modules.items()):
        if name.startswith("learnloop_") and getattr(module, "datetime", None) is dates.datetime:
            module.datetime = Shifted  # type: ignore[attr-defined]


if __name__ == "__main__":
    server = importlib.import_module(f"{sys.argv[2]}.server")
    if ACCOUNT in os.environ:
        learnloop_serving.settings.SERVICE_ACCOUNT = Path(os.environ[ACCOUNT])
    shift(float(sys.argv[1]))
    sys.exit(server.main())
