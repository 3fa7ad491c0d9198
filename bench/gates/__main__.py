"""`make bench-gates`: what gates stop, what they let through, and what they do about suites that fail themselves.

    python -m bench.gates [--each 20] [--same 200] [--seed 1] [--only bad,limit,same,broken,timing]

bad     nine kinds of bad models at random rates above the limit, asked over the network: all are to be stopped
limit   models at the very limit: a bound at 95 % may let one of twenty through
same    A/A: candidates as good as what serves, at all nine suites: at most 5 % are to be blocked
broken  suites that crash, are killed, report short, late, malformed or not at all: none is to pass
timing  all nine suites side by side against a model that takes its time: at most three minutes

The suites and the operator's judging are the product's own. The models are rules behind a server process; what is
measured is the gate. The last line is JSON with every figure. Exit code 1 when a goal is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.gates import broken, models, timing
from bench.gates.gate import Gate, write_tasks

PAUSE = 0.05
"""Seconds that the model takes for an answer where time is measured."""


@contextmanager
def gate(pause: float = 0.0) -> Iterator[Gate]:
    """A gate before a server process of models that take `pause` seconds for each answer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        program = [sys.executable, "-m", "bench.gates.model_server", str(pause)]
        server = stack.enter_context(
            subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert server.stdin is not None
        assert server.stdout is not None
        stack.callback(server.stdin.close)
        write_tasks(folder)
        yield Gate(folder, server.stdout.readline().strip())


def _timed(_: Gate, __: argparse.Namespace) -> dict[str, Any]:
    with gate(PAUSE) as slow:
        return timing.measured(slow, PAUSE)


PARTS: dict[str, Callable[[Gate, argparse.Namespace], dict[str, Any]]] = {
    "bad": lambda quick, options: models.bad(quick, options.each, options.seed),
    "limit": lambda quick, options: models.at_the_limit(quick, options.each, options.seed),
    "same": lambda quick, options: models.same(quick, options.same, options.seed),
    "broken": lambda quick, _: broken.measured(quick),
    "timing": _timed,
}


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when a goal is missed."""
    options = _options(arguments)
    figures: dict[str, Any] = {}
    with gate() as quick:
        for part in options.only:
            began = time.monotonic()
            figures[part] = PARTS[part](quick, options)
            figures[part]["took"] = round(time.monotonic() - began, 1)
            print(
                f"{part}: {'met' if not figures[part]['missed'] else 'missed'}, {figures[part]['took']} s", flush=True
            )
    missed = [f"{part}: {goal}" for part, result in figures.items() for goal in result["missed"]]
    print(json.dumps(figures | {"missed": missed, "met": not missed}))
    return 1 if missed else 0


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [part for part in names if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not a part: name some of {', '.join(PARTS)}")
    return names


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gates", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=20, help="models of each kind (%(default)s)")
    parser.add_argument("--same", type=int, default=200, help="identical models (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=_parts, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
