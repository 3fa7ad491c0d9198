"""A process that holds one reward model and scores answers: `python -m learnloop_dataplane.evaluators.scorer_process`.

The model is anybody's file, so it runs here and not in the data plane: what it takes of memory and time is this
process's, which is killed for it. From before the model's first byte it can open no file.

Standard input: 8 bytes with the model's length, the model, then a question and an answer as JSON on each line. Standard
output: one JSON object a line, `score` or `refused`.
"""

import contextlib
import importlib
import os
import resource
import sys
from typing import BinaryIO

import orjson

from learnloop_api.acting.reward_model import NoRewardModel, RewardModel, TooLong

ROOM_BYTES = 2 * 2**30
"""Of addresses, beside six times the model: onnxruntime reserves far more than it touches."""
NICE = 10


def limit(model_bytes: int) -> None:
    """No files, no memory beyond what a model of this size needs, and behind everybody else on the processor.

    Raises ValueError or OSError where a limit cannot be set: then no model is read.
    """
    # What opens files when it is first used.
    for module in ("numpy", "onnxruntime", "tokenizers"):
        importlib.import_module(module)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    wanted = ROOM_BYTES + 6 * model_bytes
    # A model may name files that hold its weights. No descriptor is free for one, whatever its path.
    most = {resource.RLIMIT_AS: wanted, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 3}
    for kind, value in most.items():
        resource.setrlimit(kind, (value, value))


def serve(asked: BinaryIO, told: BinaryIO) -> None:
    """Answers until there are no more questions."""

    def say(answer: dict[str, object]) -> None:
        told.write(orjson.dumps(answer) + b"\n")
        told.flush()

    size = int.from_bytes(asked.read(8), "big")
    limit(size)
    try:
        model = RewardModel(asked.read(size), weights_folder=os.getcwd())
    except (NoRewardModel, MemoryError) as error:
        say({"refused": str(error)[:500] or "it does not fit the memory it may have"})
        return
    say({"ready": True})
    for line in asked:
        try:
            question, answer = orjson.loads(line)
            say({"score": model.score(question, answer)})
        except (NoRewardModel, TooLong, MemoryError) as error:
            say({"refused": str(error)[:500] or "it does not fit the memory it may have"})


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
