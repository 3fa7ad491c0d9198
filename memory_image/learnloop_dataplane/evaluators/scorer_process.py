"""A process that holds one reward model and scores answers: `python -m learnloop_dataplane.evaluators.scorer_process`.

The model is anybody's file, so it runs here and not in the data plane: what it takes of memory and time is this
process's, which is killed for it. From before the model's first byte it can open no file.

Its argument: bytes of memory that it may write to. Standard input: 8 bytes with the model's length, the model, then a
question and an answer as JSON on each line. Standard output: one JSON object a line, `score` or `refused`; the first
says `ready` or `refused`.
"""

import contextlib
import importlib
import os
import resource
import sys
from pathlib import Path
from typing import BinaryIO

import orjson

from learnloop_common.acting.reward_model import NoRewardModel, RewardModel, TooLong

ADDRESSES = 2 * 2**30
"""Bytes of addresses in addition to the memory that is written to: onnxruntime reserves far more than it touches."""
NICE = 10
FIRST_TO_DIE = "1000"


def limit(most_bytes: int) -> None:
    """Sets limits: no files, bounded memory, the lowest processor priority, first to be killed for memory.

    Raises ValueError or OSError where a limit cannot be set: then no model is read.
    """
    # What opens files when it is first used.
    for module in ("numpy", "onnxruntime", "tokenizers"):
        importlib.import_module(module)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_DIE)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    most = {
        resource.RLIMIT_DATA: most_bytes,
        resource.RLIMIT_AS: ADDRESSES + most_bytes,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        # A model may name files that hold its weights. No descriptor is free for one, whatever its path.
        resource.RLIMIT_NOFILE: 3,
    }
    for kind, value in most.items():
        resource.setrlimit(kind, (value, value))


def serve(questions: BinaryIO, answers: BinaryIO, most_bytes: int) -> None:
    """Answers questions until the input ends."""

    def say(**answer: object) -> None:
        answers.write(orjson.dumps(answer) + b"\n")
        answers.flush()

    def refuse(error: Exception) -> None:
        memory = f"it needs more than the {most_bytes >> 20} MiB of memory that a model of its size may have"
        say(refused=memory if isinstance(error, MemoryError) else str(error)[:500])

    limit(most_bytes)
    size = int.from_bytes(questions.read(8), "big")
    try:
        model = RewardModel(questions.read(size))
    except (NoRewardModel, MemoryError) as error:
        refuse(error)
        return
    say(ready=True)
    for line in questions:
        try:
            say(score=model.score(*orjson.loads(line)))
        except (NoRewardModel, TooLong, MemoryError) as error:
            refuse(error)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]))
