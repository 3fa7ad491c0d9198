"""`python -m learnloop_trainer`: exit 0 when the manifest is durable, 2 never to retry, 128 or more to retry."""

import contextlib
import os
import sys
import traceback
from pathlib import Path

from learnloop_trainer import threads
from learnloop_trainer.errors import EXIT_RETRY, TrainerError
from learnloop_trainer.order import read_order, read_place

TERMINATION_LOG = "LEARNLOOP_TERMINATION_LOG"


def _testify(sentence: str) -> None:
    """Leave the reason where the kubelet finds it."""
    with contextlib.suppress(OSError):
        Path(os.environ.get(TERMINATION_LOG, "/dev/termination-log")).write_text(f"{sentence}\n", encoding="utf-8")
    print(sentence, file=sys.stderr, flush=True)


def main() -> int:
    """Run this rank; returns the exit code."""
    try:
        order = read_order(os.environ)
        place = read_place(os.environ, order.parameters.environments)
        count = threads.limit(max(order.parameters.hidden), os.environ)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # no C++ stack traces while a peer is awaited
        from learnloop_trainer.run import run  # numpy and torch read the thread variables when they are imported

        run(order, place, count)
    except TrainerError as error:
        _testify(str(error))
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        _testify(f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:500]}; please report this")
        return EXIT_RETRY
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # background threads and torch's destructors have nothing left to do
