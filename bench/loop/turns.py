"""Follows one agent through its turns: each run to its proof, each rollout to its end, then what users get."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.loop.figures import Played, Turn
from demo.narrator import Narrator, StoryFailedError
from demo.waiting import until
from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.data_plane_access import DataPlaneAccess
from learnloop_operator.cli.objects import CommandError
from testing.real_cluster.cluster_actions import Rig

RUN_SECONDS, ROLLOUT_SECONDS, EPISODE_SECONDS = 1200.0, 600.0, 300.0
ENOUGH, MOST = 40, 300
"""Completed episodes of a revision that are waited for, and that are looked at."""
SURE = 0.02
"""Standard error, as a share of the mean return, below which no further episodes are waited for."""


class Users:
    """The outcomes of an agent's users in the data plane, read with a token of the namespace."""

    def __init__(self, namespace: str, context: str | None) -> None:
        cluster = KubernetesCluster(None, context, namespace)
        self._access = DataPlaneAccess(cluster)

    def played(self, agent: str, revision: str, since: datetime) -> Played:
        """The newest completed episodes of a revision that arrived since then."""
        result = Played()
        query = {"agent": agent, "model_revisions": revision, "limit": "20", "since": since.isoformat()}
        while len(result.returns) < MOST:
            try:
                page: Any = self._access.ask("GET", "/api/v1/experience/trajectories", query, seconds=60.0)
            except CommandError:  # a busy moment: the caller asks again
                break
            for episode in page["trajectories"]:
                if episode["status"] != "completed":
                    continue
                result.returns.append(float(episode["episode_return"]))
                result.steps.append(len(episode["steps"]))
                if episode["success"] is not None:
                    result.successes.append(bool(episode["success"]))
            if page["next"] is None:
                break
            query["after"] = page["next"]
        return result

    def read_by(self, job: str) -> int:
        """Episodes of its agent's log that a run read, by its proof; 0 where it made none."""
        run: Any = self._access.ask("GET", f"/api/v1/training/runs/{job}", {}, seconds=60.0)
        experience = (run["proof"] or {}).get("experience") or {}
        return int(experience.get("episodes", 0))

    def enough(self, agent: str, revision: str, since: datetime) -> Played:
        """As `played`, when their mean is known well enough, or when the time for it is over."""
        latest = Played()

        def look() -> Played | None:
            nonlocal latest
            latest = self.played(agent, revision, since)
            return latest if len(latest.returns) >= ENOUGH and latest.is_sure(SURE, MOST) else None

        try:
            return until(f"{ENOUGH} episodes of {agent} by {revision}", look, EPISODE_SECONDS, every=5.0)
        except StoryFailedError:
            if len(latest.returns) < ENOUGH:
                raise
            return latest


@dataclass(frozen=True)
class Stable:
    """The model that serves."""

    revision: str
    uri: str


class Agent:
    """One LearningAgent of the bench."""

    def __init__(self, rig: Rig, users: Users, narrator: Narrator, namespace: str, name: str) -> None:
        self._world, self._users, self._narrator = rig, users, narrator
        self._namespace, self.name = namespace, name
        self._since = datetime.now(UTC)

    def _deployment(self) -> dict[str, Any]:
        return self._world.status(self._namespace, "modeldeployments", self.name)

    def stable(self) -> Stable | None:
        """The arm of everybody, where there is one."""
        arm = self._deployment().get("stable") or {}
        return Stable(arm["revision"], arm["uri"]) if arm.get("revision") else None

    def turn(self, number: int, prepare: Callable[[int], None]) -> Turn:
        """Run `number`, counted from 1: to its verdict and what became of it; then the next one is prepared.

        What served before and what serves now are compared in the rig of this turn: by episodes since it began.
        """
        began = time.monotonic()
        before = until(f"something that serves {self.name}", self.stable, ROLLOUT_SECONDS)
        previous = self._users.enough(self.name, before.revision, self._since)
        job = f"{self.name}-{number}"
        status = until(f"the verdict on {job}", lambda: self._verdict(job), RUN_SECONDS)
        proven = (status.get("evaluation") or {}).get("mean")
        artifact = status.get("artifact") or {}
        served, why = None, _why(status)
        if status["phase"] == "Validated":
            promoted = until(
                f"the end of {job}'s rollout", lambda: self._settled(before.uri, artifact["uri"]), ROLLOUT_SECONDS
            )
            why = str(self._deployment().get("verdict") or why)
            if isinstance(promoted, Stable):
                served = self._users.enough(self.name, promoted.revision, self._since)
        seconds = time.monotonic() - began
        prepare(number + 1)
        self._since = datetime.now(UTC)
        read, sha256 = self._users.read_by(job), artifact.get("sha256")
        turn = Turn(self.name, number, proven, previous, served, seconds, sha256, why[:200], read)
        self._narrator.say(f"{job}: {turn.as_figures()}")
        return turn

    def _verdict(self, job: str) -> dict[str, Any] | None:
        status = self._world.status(self._namespace, "trainingjobs", job)
        if status.get("progress"):
            self._narrator.on_change(job, f"{job} {status.get('phase')}: {status['progress']}")
        return status if status.get("phase") in ("Validated", "Failed") else None

    def _settled(self, before: str, uri: str) -> Stable | str | None:
        """The arm when it serves this model; a word when the model was rolled back or a later one serves instead."""
        status = self._deployment()
        if status.get("verdict"):
            self._narrator.on_change(self.name, f"{self.name}: {status['verdict']}")
        arm = self.stable()
        if arm is not None and arm.uri == uri and not status.get("canary"):
            return arm
        blocked, canary = status.get("blockedRevision") or {}, status.get("canary") or {}
        if blocked.get("uri") == uri:
            return "rolled back"
        return "overtaken" if arm is not None and arm.uri not in (before, uri, canary.get("uri")) else None


def _why(status: dict[str, Any]) -> str:
    return next((one["message"] for one in status.get("conditions", []) if one["type"] == "Ready"), "")
