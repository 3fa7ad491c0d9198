"""`python -m learnloop_gates run` and `python -m learnloop_gates deliver`."""

import sys

from learnloop_common.settings import ConfigurationError
from learnloop_gates.cases import SuiteError
from learnloop_gates.deliver import deliver
from learnloop_gates.settings import DeliverySettings, SuiteSettings


def main(arguments: list[str]) -> int:
    """Exit code 0: done; 1: the suite can say nothing, with the reason on standard error; 2: no such command."""
    try:
        if arguments == ["deliver"]:
            print(f"handed in {deliver(DeliverySettings.read())}")
            return 0
        if arguments == ["run"]:
            from learnloop_gates.run import run  # the other container needs nothing of it

            report = run(SuiteSettings.read())
            print(f"{report.suite}: {report.failed} of {report.n} failed, {report.errors} without an answer")
            return 0
    except (SuiteError, ConfigurationError) as error:
        print(error, file=sys.stderr)
        return 1
    print("usage: python -m learnloop_gates run|deliver", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
