"""On a rank's PYTHONPATH: notes when training begins, after each iteration and at each checkpoint, for the bench.

A rank that lost a peer re-executes itself, so what watches it must come with the interpreter. The trainer is not
changed: its Session is wrapped when it is imported. A note is 24 bytes, (wall clock, step, what).
"""

import importlib.abc
import importlib.util
import os
import struct
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NOTE = struct.Struct("<dqq")
BEGUN, ITERATED, CAPTURED = range(3)


class _Watch(importlib.abc.MetaPathFinder):
    """Wraps learnloop_trainer.training_run.training_loop once it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's own, with its loader wrapped."""
        if name != "learnloop_trainer.training_run.training_loop":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            _wrap(module)

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def _wrap(module: Any) -> None:
    handle = os.open(os.environ["LEARNLOOP_BENCH_NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(step: int, what: int) -> None:
        os.write(handle, NOTE.pack(time.time(), step, what))

    resume, between, save = module.Session._resumed, module.Session._between, module.Session._save

    def resumed(session: Any) -> Any:
        training = resume(session)
        note(training.learner.step, BEGUN)
        return training

    def iterated(session: Any, training: Any) -> None:
        note(training.learner.step, ITERATED)
        between(session, training)

    def saved(session: Any, training: Any) -> None:
        note(training.learner.step, CAPTURED)
        save(session, training)

    module.Session._resumed, module.Session._between, module.Session._save = resumed, iterated, saved


if "LEARNLOOP_BENCH_NOTES" in os.environ:
    sys.meta_path.insert(0, _Watch())
