"""An engine that runs, and the folder it shares with the trainer: a foreign program, so all it writes is hostile."""

import os
import secrets
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from learnloop_api import names
from learnloop_api.wire import engine as wire
from learnloop_environments.errors import EXIT_COUNTED, EXIT_NEVER_RETRY, TrainerError

M = TypeVar("M", bound=BaseModel)
PAGE = "docs/reference/engines.md"
GRACE_SECONDS = 15.0
"""Of the time between SIGTERM and SIGKILL, the engine's part; what it saves has to be stored in the rest."""
INHERITED = ("PATH", "HOME", "LANG", "PYTHONPATH", "TMPDIR", "OMP_NUM_THREADS", names.ENV_ENVIRONMENT_DIRECTORY)
"""Variables that an engine sees. No token, no address: it reports through its folder alone."""


class EngineMistaken(TrainerError):
    """The engine handed in something that breaks the contract; it would again."""

    exit_code = EXIT_NEVER_RETRY


class EngineFailed(TrainerError):
    """The engine ended with an error: worth another attempt, but not endless ones."""

    exit_code = EXIT_COUNTED


class Exchange:
    """Files of one flat folder. A link, a pipe or too large a file is refused, never followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def give(self, name: str, body: bytes) -> None:
        """Write a file that the engine reads; it is there whole or not at all."""
        temporary = f".{name}.{secrets.token_hex(8)}"  # a name that the engine cannot have taken
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=self._handle), "wb") as file:
            file.write(body)
        os.rename(temporary, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._handle)
        except FileNotFoundError:
            return

    def mark(self, name: str) -> tuple[int, int, int] | None:
        """Changes whenever the file is replaced; None without one."""
        try:
            state = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size

    def take(self, name: str, most: int, *, cut: bool = False) -> bytes | None:
        """A file that the engine wrote, of at most so many bytes; None without one. Raises EngineMistaken.

        `cut`: the first bytes of a larger one.
        """
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EngineMistaken(f"{name}: cannot be read ({error.strerror}); write a plain file") from None
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise EngineMistaken(f"{name}: is not a plain file; write one, as {PAGE} says")
            body = file.read(most + 1)
        if len(body) > most and not cut:
            raise EngineMistaken(f"{name}: is larger than {most} bytes; hand in less")
        return body[:most]

    def read(self, name: str, model: type[M], most: int) -> M | None:
        """The document in a file; None without one. Raises EngineMistaken, naming the field."""
        body = self.take(name, most)
        if body is None:
            return None
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "document"
            problem = f"{name}: {field}: {str(first.get('input'))[:80]!r}: {first['msg']}"
            fix = f"correct it as {PAGE} says; write it under another name and rename it"
            raise EngineMistaken(f"{problem}; {fix}") from None


@dataclass(frozen=True, slots=True)
class Handed:
    """Last files of an engine, by their names, and its result."""

    files: Mapping[str, bytes]
    result: wire.EngineResult


class Engine(Protocol):
    """A program that was started, or starts once the order is there."""

    def start(self) -> None: ...

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""

    def stop(self) -> None:
        """End it, with time to save a checkpoint. Raises nothing: the proof may be durable by then."""


class Child:
    """A command run by the trainer."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = list(command), folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises EngineMistaken for a program that is not there."""
        environ = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            self._process = subprocess.Popen(self._command, env=environ | {wire.ENV_DIRECTORY: str(self._folder)})
        except OSError as error:
            raise EngineMistaken(f"command: {self._command[0]!r}: {error.strerror}; name a program") from None

    def ended(self) -> int | None:
        code = None if self._process is None else self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Container:
    """The container next to this one. Its script waits for the order, heeds STOP, and says in EXIT how it ended."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def start(self) -> None:
        """Its command waits for the order."""

    def ended(self) -> int | None:
        text = (self._exchange.take(wire.EXIT, 16) or b"").decode(errors="replace").strip()
        if not text:
            return None
        return int(text) if text.isdecimal() else 1

    def stop(self) -> None:
        with suppress(OSError, EngineMistaken):
            self._exchange.give(wire.STOP, b"")
            end = time.monotonic() + GRACE_SECONDS
            while self.ended() is None and time.monotonic() < end:
                time.sleep(0.1)
