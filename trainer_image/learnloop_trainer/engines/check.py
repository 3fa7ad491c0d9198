"""`python -m learnloop_trainer.engines.check [--base FOLDER] COMMAND`: does a program keep to the engine contract?

Needs no cluster. With the folder of a base model, the program trains that.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from learnloop_environments.errors import TrainerError
from learnloop_trainer import store, training_order
from learnloop_trainer.engines.engine_process import PAGE
from learnloop_trainer.engines.engine_run import run
from learnloop_trainer.language.base_model import folder_digest

SPEC = {
    "algorithm": "custom",
    "totalSteps": 2000,
    "data": {"environment": "CartPole-v1"},
    "evaluation": {"episodes": 16},
    "pod": {"image": "none", "command": ["none"]},
}


def main(command: Sequence[str]) -> int:
    """Train CartPole-v1, or ToolLookupEasy-v1, for 2,000 steps by the command. Returns 0, or the run's exit code."""
    spec = SPEC
    if len(command) > 1 and command[0] == "--base":
        base = Path(command[1]).resolve()
        model = {"base": {"uri": base.as_uri(), "sha256": folder_digest(base)}}
        spec, command = SPEC | {"data": {"environment": "ToolLookupEasy-v1", "languageModel": model}}, command[2:]
    if not command:
        print("usage: python -m learnloop_trainer.engines.check [--base FOLDER] COMMAND [ARGUMENT …]", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        os.environ[store.VARIABLE] = f"file://{folder}"
        try:
            run(training_order.Order.model_validate({"job": "check", "spec": spec}), training_order.Place(), 1, command)
        except TrainerError as error:
            print(f"does not keep to {PAGE}: {error}", file=sys.stderr)
            return error.exit_code
    print(f"keeps to {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
