"""Cases of a suite, counted; the standard library alone, since suites' own environments run it, too."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field


@dataclass
class Suite:
    """A suite that somebody else made, and how we stood before it."""

    suite: str
    version: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """One case: anything raised is its failure."""
        self.cases += 1
        try:
            yield
        except Exception as error:
            self.fails(f"{name}: {type(error).__name__}: {error}")

    def fails(self, sentence: str) -> None:
        """One more failure, printed as it comes."""
        self.failures.append(sentence)
        print(f"{self.suite}: {sentence}"[:60000], file=sys.stderr, flush=True)


def finish(*suites: Suite) -> int:
    """Print the suites as one line of JSON; 1 when one has failures."""
    print(json.dumps([asdict(suite) for suite in suites]))
    return int(any(suite.failures for suite in suites))
