"""`python -m learnloop_operator`: the operator process."""

import logging
import os
import sys

import uvloop

from learnloop_common.telemetry import set_up, style_of
from learnloop_operator.kube.http_transport import NoCluster
from learnloop_operator.reconcile.operator_process import operate
from learnloop_operator.settings import Settings


def main() -> int:
    """Run until SIGTERM (0), a lost Lease or a dead watch (1), or a configuration that cannot work (2)."""
    try:
        settings, style = Settings.read(), style_of(os.environ)
    except ValueError as error:
        print(f"learnloop-operator: {error}", file=sys.stderr)
        return 2
    set_up(settings.log_level, style, "%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        return uvloop.run(operate(settings))
    except NoCluster as error:
        print(f"learnloop-operator: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
