"""One `up`, `down` or `load` at a time for each state folder. The system drops the lock when its holder is killed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from cluster.state_folder import State
from toolkit.locks import acquire


@contextmanager
def exclusive(state: State) -> Iterator[None]:
    """Hold the state folder's lock, after saying so if somebody else has it."""
    state.lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with state.lock.open("w") as lock:
            acquire(lock, f"another run is at work on {state.root}; waiting for it to end")
            if not _still_there(lock, state):
                continue  # `down` removed the file while this run waited for it: others would lock another one
            try:
                yield
            finally:
                if not state.root.exists():  # refused, or taken down: nothing is left to be locked
                    state.lock.unlink(missing_ok=True)
            return


def _still_there(lock: IO[str], state: State) -> bool:
    try:
        return os.path.samestat(os.fstat(lock.fileno()), state.lock.stat())
    except FileNotFoundError:
        return False
