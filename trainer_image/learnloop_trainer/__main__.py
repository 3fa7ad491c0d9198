"""`python -m learnloop_trainer`: one rank.

The exit code says what may be done about its end.

0: the proof is durable. 2: never try again. 70: this attempt is lost. 128 or more: a pod like this one may be made
again, without end and without counting; 70 ends the whole gang, so that the operator counts the attempt.
"""

import os
import sys

from learnloop_common import termination_message
from learnloop_trainer import thread_limits


def main() -> int:
    thread_limits.bound(os.environ)
    # numpy reads those variables when it is imported, and the environments, whose errors these are, import it.
    from learnloop_environments.errors import EXIT_COUNTED, TrainerError
    from learnloop_trainer.errors import Terminated
    from learnloop_trainer.training_order import read_order, read_place

    try:
        order = read_order(os.environ)
        place = read_place(os.environ, order.shares)
        count = thread_limits.limit(order.widest_layer(os.environ), os.environ)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # no C++ stack traces while a peer is awaited
        from learnloop_trainer.engines.engine_run import run
        from learnloop_trainer.floating_point import settle  # torch reads the variables, too

        settle(count)
        run(order, place, count)
    except (TrainerError, Terminated) as error:
        termination_message.leave(str(error))
        return error.exit_code
    except Exception as error:
        termination_message.end(error, "unexpected ", "; please report this")
        return EXIT_COUNTED
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # background threads and torch's destructors have nothing left to do
