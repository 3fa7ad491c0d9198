"""`--wait`, `--timeout` and `--junit`, as every verb has them that a pipeline calls."""

import argparse
import math

from learnloop_operator.cli.errors import CommandError


def waiting_options(parser: argparse.ArgumentParser, until: str, cases: str) -> None:
    """Add the three. `until`: what `--wait` waits for; `cases`: what the test cases are."""
    parser.add_argument("--wait", action="store_true", help=f"until {until}")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS", help="for --wait (%(default)s)")
    parser.add_argument("--junit", metavar="FILE", help=f"with --wait: {cases} as test cases")


def check(options: argparse.Namespace) -> None:
    """Before anything is asked for.

    Raises:
        CommandError: `--junit` without `--wait`, or a `--timeout` that is no time.
    """
    if options.junit and not options.wait:
        raise CommandError("--junit goes with --wait: there is no result before the end")
    if not math.isfinite(options.timeout) or options.timeout < 0:
        raise CommandError(f"--timeout {options.timeout:g} is no time: give seconds, 0 or more")
