"""One training run in real processes, started again like pods are: the bench is the kubelet."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.resume.cases import JOB
from bench.resume.watch.sitecustomize import BEGUN, NOTE
from learnloop_api.wire.training import Proof
from learnloop_trainer.store.run_store import DirectoryStore, unpack

WATCH = Path(__file__).parent / "watch"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Note:
    """One act of a rank, with its time (wall clock)."""

    at: float
    step: int
    what: int


class Gang:
    """All ranks of a run; each that ends with a code that asks for it is started again immediately."""

    def __init__(self, order: dict[str, Any], ranks: int, directory: Path, threads: int = 1) -> None:
        """Start the ranks with so many threads each; everything they leave lies in `directory`."""
        directory.mkdir(parents=True)
        self._threads = dict.fromkeys(THREADS, str(threads))
        self.directory, self._order = directory, order
        self._port = socket.socket()  # bound and never listening: no other process gets this port in the meantime
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        self.size, self.starts, self.started = ranks, 0, 0.0
        self.left: dict[int, tuple[int, float]] = {}  # rank → its last exit code and when that was seen
        self.processes = [self._start(rank) for rank in range(ranks)]

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        self.starts, self.started = self.starts + 1, time.time()
        environ = os.environ | self._threads
        environ |= {
            "PYTHONPATH": os.pathsep.join((str(WATCH), "examples/worlds", os.environ.get("PYTHONPATH", ""))),
            "LEARNLOOP_BENCH_NOTES": str(self.directory / f"notes-{rank}"),
            "LEARNLOOP_TRAINING_SPEC": json.dumps(self._order),
            "LEARNLOOP_TERMINATION_LOG": str(self.directory / f"termination-{rank}"),
            "LEARNLOOP_STORE": f"file://{self.directory}/store",
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._port.getsockname()[1]),
        }
        command = [sys.executable, "-m", "learnloop_trainer"]
        with (self.directory / f"log-{rank}").open("ab") as log:
            return subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)

    def look(self) -> bool:
        """Start again what ended; True when every rank has finished."""
        for rank, process in enumerate(self.processes):
            code = process.poll()
            if code is None or code == 0:
                continue
            self.left[rank] = (code, time.time())
            if 0 < code < 128:
                log = (self.directory / f"log-{rank}").read_text(errors="replace")[-3000:]
                raise SystemExit(f"rank {rank} gave up with exit code {code} in {self.directory}:\n{log}")
            self.processes[rank] = self._start(rank)
        return all(process.returncode == 0 for process in self.processes)

    def strike(self, ranks: list[int], number: signal.Signals) -> float:
        """Send the signal to these ranks; returns when."""
        now = time.time()
        for rank in ranks:
            self.processes[rank].send_signal(number)
        return now

    def notes(self, rank: int = 0) -> list[Note]:
        """Everything this rank noted, in order."""
        path = self.directory / f"notes-{rank}"
        body = path.read_bytes() if path.exists() else b""
        whole = len(body) - len(body) % NOTE.size
        return [Note(*fields) for fields in NOTE.iter_unpack(body[:whole])]

    def begun_after(self, moment: float) -> bool:
        """Do all ranks train, in a group formed after this moment?"""
        return all(
            any(note.what == BEGUN and note.at > moment for note in reversed(self.notes(rank)[-4000:]))
            for rank in range(self.size)
        )

    def finish(self, seconds: float = 1200) -> None:
        """Wait for the end; SystemExit when it does not come."""
        end = time.monotonic() + seconds
        while not self.look():
            if time.monotonic() > end:
                raise SystemExit(f"the run in {self.directory} did not end within {seconds:.0f} s")
            time.sleep(0.02)

    def close(self) -> None:
        """End whatever still runs."""
        for process in self.processes:
            process.kill()
            process.wait()
        self._port.close()


@dataclass(frozen=True, slots=True)
class Result:
    """The identity of a finished run: SHA-256 of weights, of everything else in the final state, of the model."""

    weights: str
    state: str
    artifact: str


def result(gang: Gang) -> Result:
    """Of a run that has finished."""
    store = DirectoryStore(gang.directory / "store", JOB)
    saved, proof = store.checkpoint(), store.proof()
    if saved is None or not isinstance(proof, Proof):
        raise SystemExit(f"the run in {gang.directory} ended without checkpoint and proof")
    arrays, metadata = unpack(saved.body)
    state = hashlib.sha256()
    for name in sorted(arrays):
        state.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode() + arrays[name].tobytes())
    return Result(metadata["weights"], state.hexdigest(), proof.artifact_sha256)
