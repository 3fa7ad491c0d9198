"""What a verb is."""

import argparse
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from learnloop_operator.cli.access.cluster import Cluster


class Verb(Protocol):
    """A module, or an object, with these names; its help is in verb_table."""

    @property
    def NAME(self) -> str:
        """The verb."""
        ...

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's own arguments."""

    def run(self, cluster: "Cluster", options: argparse.Namespace) -> str:
        """Do it; returns what to print. Raises CommandError."""
