"""A directory as store: for a laptop, for tests, for a shared volume. tmp, fsync, rename: never half a file."""

import json
import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.base import Sha256
from learnloop_api.wire.language import Preference
from learnloop_api.wire.training import Heartbeat, Manifest
from learnloop_api.wire.trajectory import OPTED_IN, EpisodeSelection, LoggedEpisode, Trajectory
from learnloop_trainer.errors import StoreRefused, StoreUnavailable
from learnloop_trainer.store.run_store import SavedCheckpoint, digest, parsed, verified


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
    sha256: Sha256


_LIST = TypeAdapter(list[_Listed])


class DirectoryStore:
    """`root/artifacts/<sha256>.onnx`, `root/runs/<job>/…`, `root/observations/<agent>.json`,
    `root/{trajectories,preferences}/<agent>.jsonl`, `root/reward-policies/<name>/<revision>.json`."""

    def __init__(self, root: Path, job: str) -> None:
        self._root, self._run = root, root / "runs" / job

    def heartbeat(self, beat: Heartbeat) -> None:
        write(self._run / "heartbeat.json", beat.model_dump_json().encode())

    def put_checkpoint(self, body: bytes, step: int) -> str:
        """The body under its digest, then the list that names it. The one before stays, in case."""
        sha256 = digest(body)
        write(self._run / f"{sha256}.safetensors", body)
        before = [entry for entry in self._listed() if entry.sha256 != sha256]
        listing = [_Listed(step=step, sha256=sha256), *before[:1]]
        write(self._run / "checkpoint.json", json.dumps([entry.model_dump() for entry in listing]).encode())
        for old in self._run.glob("*.safetensors"):
            if old.stem not in {entry.sha256 for entry in listing}:
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

    def put_manifest(self, manifest: Manifest) -> None:
        write(self._run / "manifest.json", manifest.model_dump_json(indent=2).encode())

    def manifest(self) -> Manifest | None:
        body = read(self._run / "manifest.json")
        return None if body is None else parsed(Manifest, body, "manifest", "delete it to train again")

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

    def preferences(self, agent: str, limit: int) -> list[Preference]:
        """One wire.Preference as JSON on each line of `preferences/<agent>.jsonl`, the oldest first."""
        path = self._root / "preferences" / f"{Path(agent).name}.jsonl"
        lines = (read(path) or b"").splitlines()[::-1][:limit]
        return [parsed(Preference, line, str(path), "remove the damaged line") for line in lines]

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
