"""`python -m learnloop_api.crd write|check FOLDER`: writes the YAML of the models, or checks that it is up to date."""

import argparse
import sys
from pathlib import Path

from learnloop_api.crd.definition import stale, write


def main() -> int:
    """Run one verb. Returns 0, or 1 when `check` finds a file that differs."""
    parser = argparse.ArgumentParser(prog="python -m learnloop_api.crd", description=__doc__)
    parser.add_argument("verb", choices=["write", "check"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.verb == "write":
        for path in write(options.folder):
            print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")
        return 0
    differing = stale(options.folder)
    for path in differing:
        print(f"{path} is stale: run `make crds` and commit the result", file=sys.stderr)
    return 1 if differing else 0


sys.exit(main())
