"""The command line of a bench apart from `--help`: a few numbers, in their order."""

import argparse
import sys
from collections.abc import Sequence


def parser(about: str | None) -> argparse.ArgumentParser:
    """Of the bench that is running: its name as it is called, and `about` as it is written."""
    module = sys.modules["__main__"].__spec__
    assert module is not None, "a bench runs by python -m"
    name = module.name.removesuffix(".__main__")
    return argparse.ArgumentParser(
        prog=f"python -m {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def numbers(about: str | None, arguments: Sequence[str], **defaults: float) -> argparse.Namespace:
    """The numbers given, by the names of `defaults` and of their types; those left out are the defaults.

    Anything else ends the process with a sentence and exit code 2, `--help` with `about` and 0.
    """
    options = parser(about)
    for name, default in defaults.items():
        options.add_argument(name, nargs="?", type=type(default), default=default, help=f"{default:,} where left out")
    return options.parse_args(arguments)
