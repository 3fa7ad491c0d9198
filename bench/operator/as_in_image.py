"""Runs a module as in the operator's image: without the official `kubernetes` package.

    python -m bench.operator.as_in_image MODULE

Kopf imports that package wherever it is installed, for 35 MiB and half a second. The development environment has it for
the command line's sake; neither the image nor requirements/operator.txt does. The peer is run in the same way.
"""

import runpy
import sys

ABSENT = "kubernetes"


def main() -> None:
    """Returns, or raises, as the module does."""
    module = sys.argv.pop(1)
    sys.modules[ABSENT] = None  # type: ignore[assignment]  # documented: importing it then raises ModuleNotFoundError
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
