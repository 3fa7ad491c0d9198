"""A run's store, a directory as one, and the container of its arrays.

Written here by hand, one copy of the numbers and no more: a training run does it every second (the safetensors package
takes ten times as long for a replay buffer). Format: github.com/huggingface/safetensors, "Format".
"""

import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire import base, language, training
from learnloop_api.wire.trajectory import OPTED_IN, EpisodeSelection, LoggedEpisode, Trajectory
from learnloop_trainer.errors import StoreRefused, StoreUnavailable

Arrays = dict[str, NDArray[np.generic]]
M = TypeVar("M", bound=BaseModel)
MAX_HEADER = 64 << 20
TYPES = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<i2": "I16", "<i4": "I32", "<i8": "I64", "<u2": "U16", "<u4": "U32"}
TYPES |= {"<u8": "U64", "<f2": "F16", "<f4": "F32", "<f8": "F64"}


def pack(arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and metadata as one blob; the same ones make the same bytes. KeyError: a type other than a number."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    buffers, end = list[memoryview](), 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": TYPES[array.dtype.str], "shape": array.shape, "data_offsets": (begin, end)}
        buffers.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    return b"".join((struct.pack("<Q", len(text)), text, *buffers))


def unpack(body: bytes) -> tuple[Arrays, dict[str, str]]:
    """The inverse of `pack`; raises ValueError when the blob is not a safetensors container."""
    try:
        (length,) = struct.unpack_from("<Q", body)
        if length > min(MAX_HEADER, len(body) - 8):
            raise ValueError("its header is longer than the container")
        metadata = json.loads(body[8 : 8 + length]).get("__metadata__", {})
        return dict(load(body)), {str(key): str(value) for key, value in metadata.items()}
    except (struct.error, ValueError, AttributeError, SafetensorError) as error:
        raise ValueError(f"not a safetensors container: {error}") from None
    except RecursionError:
        raise ValueError("not a safetensors container: its header is nested too deep") from None
    except KeyError as error:  # of numpy's types
        raise ValueError(f"a safetensors container with numbers of type {error}, which is not read here") from None


def part(arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> Arrays:
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}/")}


def under(prefix: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


MAX_ARTIFACT = 512 << 20
MAX_CHECKPOINT = 4 << 30


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The newest durable checkpoint."""

    body: bytes
    step: int
    sha256: str


class Store(Protocol):
    """One run's view of the store. Raises StoreUnavailable (worth a retry) or StoreRefused (not worth one)."""

    def heartbeat(self, beat: training.Heartbeat) -> None:
        """Replace the run's heartbeat. One quick attempt, no retries."""

    def newest_heartbeat(self) -> training.Heartbeat | None:
        """The one that `heartbeat` would replace."""

    def put_checkpoint(self, body: bytes, step: int) -> str:
        """Make this the newest checkpoint; returns its SHA-256 once it is durable."""

    def checkpoint(self, back: int = 0) -> SavedCheckpoint | None:
        """The newest durable checkpoint, its digest checked; `back` 1: the one before it. StoreRefused: damaged."""

    def put_artifact(self, body: bytes) -> str:
        """Store an exported policy by its content; returns its URI once it is durable."""

    def artifact(self, uri: str) -> bytes:
        """The bytes behind the URI of an artifact in this store."""

    def put_proof(self, proof: training.Proof) -> None:
        """Finish the run; returns once the proof is durable."""

    def update(self) -> training.UpdateOrder | None:
        """The newest update that was ordered of a rank that stays; None before the first."""

    def proof(self) -> training.Proof | None:
        """The proof, when the run is already finished."""

    def observations(self, agent: str, limit: int) -> list[list[float]]:
        """Observations the agent really saw, newest first; an empty list when none are recorded."""

    def reward_policy(self, name: str, revision: str) -> RewardPolicySpec:
        """A published RewardPolicy; StoreRefused: no such revision."""

    def preferences(self, agent: str, limit: int) -> list[language.Preference]:
        """Preferences of people among the agent's answers, newest first, at most `limit`."""

    def episodes(
        self, agent: str, selection: EpisodeSelection, limit: int, patience: float | None = None
    ) -> list[LoggedEpisode]:
        """The agent's logged episodes that meet the selection, newest first, until they hold `limit` steps.

        None is cut, none comes twice. `patience`: seconds that it may take for the store to answer; None: as ever.
        """


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def verified(body: bytes, sha256: str, what: str) -> bytes:
    """The body, if its digest is the expected one; raises StoreRefused if not."""
    if digest(body) != sha256:
        raise StoreRefused(f"{what}: SHA-256 is {digest(body)}, {sha256} was expected; the stored copy is damaged")
    return body


def parsed(model: type[M], body: bytes, what: str, fix: str) -> M:
    """The model in a JSON document; raises StoreRefused with the fix."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise StoreRefused(f"{what}: {error.errors()[0]['msg']}; {fix}") from None


def write(path: Path, body: bytes) -> None:
    """Replace the file atomically and durably."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)  # what a full disk needs least
            raise
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
    except OSError as error:
        raise StoreUnavailable(f"{path}: cannot be written ({error.strerror}); free space or fix its rights") from None


def read(path: Path) -> bytes | None:
    """The file's content, None without such a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path}: cannot be read ({error.strerror}); fix its rights") from None


class _Listed(BaseModel):
    step: int
    sha256: base.Sha256


_LIST = TypeAdapter(list[_Listed])


class DirectoryStore:
    """`root/artifacts/<sha256>.onnx`, `root/runs/<job>/…`, `root/observations/<agent>.json`,
    `root/{trajectories,preferences}/<agent>.jsonl`, `root/reward-policies/<name>/<revision>.json`."""

    def __init__(self, root: Path, job: str) -> None:
        self._root, self._run = root, root / "runs" / job

    def heartbeat(self, beat: training.Heartbeat) -> None:
        write(self._run / "heartbeat.json", beat.model_dump_json().encode())

    def newest_heartbeat(self) -> training.Heartbeat | None:
        body = read(self._run / "heartbeat.json")
        return None if body is None else parsed(training.Heartbeat, body, "heartbeat", "delete it")

    def put_checkpoint(self, body: bytes, step: int) -> str:
        """The body under its digest, then the list that names it. The one before stays, in case."""
        sha256 = digest(body)
        write(self._run / f"{sha256}.safetensors", body)
        before = [entry for entry in self._listed() if entry.sha256 != sha256]
        listing = [_Listed(step=step, sha256=sha256), *before[:1]]
        write(self._run / "checkpoint.json", json.dumps([entry.model_dump() for entry in listing]).encode())
        for old in self._run.glob("*.safetensors*"):  # half of one, too, whose writer was killed
            if old.name not in {f"{entry.sha256}.safetensors" for entry in listing}:
                old.unlink(missing_ok=True)
        return sha256

    def checkpoint(self, back: int = 0) -> SavedCheckpoint | None:
        for entry in self._listed()[back : back + 1]:
            body = read(self._run / f"{entry.sha256}.safetensors")
            if body is None:
                raise StoreRefused(f"checkpoint of step {entry.step}: {entry.sha256}.safetensors is gone")
            return SavedCheckpoint(
                verified(body, entry.sha256, f"checkpoint of step {entry.step}"), **entry.model_dump()
            )
        return None

    def _listed(self) -> list[_Listed]:
        body = read(self._run / "checkpoint.json")
        try:
            return [] if body is None else _LIST.validate_json(body)
        except ValidationError:
            raise StoreRefused(f"{self._run / 'checkpoint.json'}: is not a list of checkpoints; delete it") from None

    def put_artifact(self, body: bytes) -> str:
        path = self._root / "artifacts" / f"{digest(body)}.onnx"
        write(path, body)
        return path.resolve().as_uri()

    def artifact(self, uri: str) -> bytes:
        """`learnloop://<namespace>/<sha256>` is looked up by its digest."""
        sha256 = uri.rsplit("/", 1)[-1]
        body = read(self._root / "artifacts" / f"{sha256}.onnx")
        if body is None:
            raise StoreRefused(f"{uri}: no such artifact in {self._root}")
        return verified(body, sha256, uri)

    def put_proof(self, proof: training.Proof) -> None:
        write(self._run / "proof.json", proof.model_dump_json(indent=2).encode())

    def update(self) -> training.UpdateOrder | None:
        body = read(self._run / "update.json")
        return None if body is None else parsed(training.UpdateOrder, body, "update", "correct it")

    def proof(self) -> training.Proof | None:
        body = read(self._run / "proof.json")
        return None if body is None else parsed(training.Proof, body, "proof", "delete it to train again")

    def observations(self, agent: str, limit: int) -> list[list[float]]:
        body = read(self._root / "observations" / f"{Path(agent).name}.json")
        rows = [] if body is None else json.loads(body).get("observations", [])
        return [list(map(float, row)) for row in rows[:limit]]

    def reward_policy(self, name: str, revision: str) -> RewardPolicySpec:
        """`reward-policies/<name>/<revision>.json` holds the spec."""
        path = self._root / "reward-policies" / Path(name).name / f"{Path(revision).name}.json"
        body = read(path)
        if body is None:
            raise StoreRefused(f"{path}: is missing; write the spec of the RewardPolicy there as JSON")
        return parsed(RewardPolicySpec, body, str(path), "correct it")

    def preferences(self, agent: str, limit: int) -> list[language.Preference]:
        """One wire.Preference as JSON on each line of `preferences/<agent>.jsonl`, the oldest first."""
        path = self._root / "preferences" / f"{Path(agent).name}.jsonl"
        lines = (read(path) or b"").splitlines()[::-1][:limit]
        return [parsed(language.Preference, line, str(path), "remove the damaged line") for line in lines]

    def episodes(
        self, agent: str, selection: EpisodeSelection, limit: int, patience: float | None = None
    ) -> list[LoggedEpisode]:
        """One wire.Trajectory as JSON on each line, the oldest first; their times are those of their ends.

        Raises StoreRefused where rewards or the warehouse are asked for: a directory has neither.
        """
        del patience
        if selection.source != "postgresql" or (selection.min_reward, selection.max_reward) != (None, None):
            fix = "remove source, minReward and maxReward from spec.data.filter"
            raise StoreRefused(f"{self._root}: a directory has no warehouse, and what is in it has no rewards; {fix}")
        path = self._root / "trajectories" / f"{Path(agent).name}.jsonl"
        episodes: list[LoggedEpisode] = []
        for line in reversed((read(path) or b"").splitlines()):
            if sum(len(episode.steps) for episode in episodes) >= limit:
                break
            trajectory = parsed(Trajectory, line, str(path), "remove the damaged line")
            if _meets(trajectory, selection):
                episodes.append(logged(trajectory))
        return episodes


def logged(trajectory: Trajectory) -> LoggedEpisode:
    outcome = trajectory.outcome
    return LoggedEpisode(
        trajectory_id=trajectory.trajectory_id,
        policy_revision=trajectory.policy_revision,
        status=outcome.status,
        episode_return=outcome.episode_return,
        success=outcome.success,
        values=dict(outcome.values),
        steps=trajectory.steps,
        last_observation=trajectory.last_observation,
    )


def _meets(one: Trajectory, wanted: EpisodeSelection) -> bool:
    return (
        (wanted.since is None or one.ended_at >= wanted.since)
        and (wanted.until is None or one.ended_at < wanted.until)
        and (not wanted.tasks or one.task in wanted.tasks)
        and (not wanted.model_revisions or one.policy_revision in wanted.model_revisions)
        and (wanted.success is None or one.outcome.success == wanted.success)
        and (not wanted.opted_in or one.metadata.get(OPTED_IN) == "true")
    )
