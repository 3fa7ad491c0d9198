"""Which installation is meant."""

from argparse import ArgumentParser


def arguments(parser: ArgumentParser) -> None:
    """Its namespace, its name, and how long to wait."""
    parser.add_argument(
        "--release", metavar="NAME", default="learnloop", help="full name of the chart's objects (%(default)s)"
    )
    parser.add_argument(
        "--release-namespace", metavar="NAME", default="learnloop-system", help="where it is installed (%(default)s)"
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=3600.0, help="wait so long (%(default)s)")
