"""A leader as far as traces go: a process that sees passes, one JSON object a line, and exports what has ended.

    python -m testing.operators.tracing_leader ENDPOINT

It says "seen" as soon as a pass is seen, so that a test can kill it before anything has left it.
"""

import json
import sys
from datetime import datetime

from learnloop_operator.reconcile.span_export import SpanExport
from learnloop_operator.reconcile.tracer import Tracer


def main() -> None:
    """Until its input ends: then it sends what waits."""
    exporter = SpanExport(sys.argv[1], {})
    tracer = Tracer(exporter, lambda _, __: None)
    for line in sys.stdin:
        told = json.loads(line)
        now = datetime.fromisoformat(told["now"])
        tracer.saw(told["kind"], told["body"], told["before"], told["after"], now)
        print("seen", flush=True)
    exporter.close()


if __name__ == "__main__":
    main()
