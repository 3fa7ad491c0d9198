"""What a verb is."""

import argparse
from typing import Protocol

from learnloop_operator.cli.access.cluster import Cluster


class Verb(Protocol):
    """One file per verb: a module with these names."""

    NAME: str
    HELP: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's own arguments."""

    def run(self, cluster: Cluster, options: argparse.Namespace) -> str:
        """Do it; returns what to print. Raises CommandError."""
