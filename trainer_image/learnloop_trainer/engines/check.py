"""`python -m learnloop_trainer.engines.check [--base FOLDER] COMMAND`: does a program keep to the engine contract?

Needs no cluster. With the folder of a base model, the program trains that. A second attempt resumes what the first one
saved last.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from learnloop_api.wire.engine import RESUME
from learnloop_environments.errors import TrainerError
from learnloop_trainer import store, training_order
from learnloop_trainer.engines.engine_process import PAGE
from learnloop_trainer.engines.engine_run import run
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.run_store import DirectoryStore, pack, unpack

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
        for attempt in (0, 1):
            os.environ[store.VARIABLE] = f"file://{folder}/{attempt}"
            order = training_order.Order.model_validate({"job": "check", "attempt": attempt, "spec": spec})
            try:
                run(order, training_order.Place(), 1, command)
            except TrainerError as error:
                again = f"started again with its checkpoint as {RESUME}: " if attempt else ""
                print(f"does not keep to {PAGE}: {again}{error}", file=sys.stderr)
                return error.exit_code
            if not attempt:
                _hand_on(DirectoryStore(Path(folder, "0"), "check"), DirectoryStore(Path(folder, "1"), "check"))
    print(f"keeps to {PAGE}")
    return 0


def _hand_on(first: DirectoryStore, second: DirectoryStore) -> None:
    """The checkpoint, without the files that ended the run."""
    saved = first.checkpoint()
    assert saved is not None
    arrays, facts = unpack(saved.body)
    second.put_checkpoint(pack({"checkpoint": arrays["checkpoint"]}, facts), saved.step)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
