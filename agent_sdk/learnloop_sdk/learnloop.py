"""Learnloop: the one object an agent holds."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from learnloop_api import names
from learnloop_common.tls import scheme, with_scheme
from learnloop_sdk import errors, http_client, outbox, policy_client
from learnloop_sdk.episode import EXTERNAL_REVISION, Episode
from learnloop_sdk.memory import MemoryClient, People
from learnloop_sdk.trajectory_encoding import default_redactor, encoded

log = logging.getLogger(__name__)
ENV_ENDPOINT = "LEARNLOOP_ENDPOINT"
ENV_MEMORY_URL = "LEARNLOOP_MEMORY_URL"
T = TypeVar("T")


class Learnloop:
    """Act with the served policy, record what came of it, remember. Use as `async with`, from one event loop.

    Args:
        agent: name of the LearningAgent.
        endpoint: base URL of its ModelDeployment's Service; default $LEARNLOOP_ENDPOINT, else the Service of the
            agent's name in its own namespace, by TLS where learnloop's authorities are mounted (names.CA_FILE).
        namespace: the agent's own; default $LEARNLOOP_NAMESPACE, else that of the pod's account.
        data_url: data plane for trajectories; default $LEARNLOOP_DATA_URL. Like every address here it may lack a
            scheme: then it goes by TLS where learnloop's authorities are mounted.
        memory_url: the namespace's own memory service; default $LEARNLOOP_MEMORY_URL, else the data plane.
        token_file: a token of audience `learnloop`; default $LEARNLOOP_TOKEN_FILE, else names.TOKEN_FILE.
        memory_token_file: one for memory_url, of that MemoryService's own audience (names.memory_audience); default
            $LEARNLOOP_MEMORY_TOKEN_FILE, else names.MEMORY_TOKEN_FILE.
        fallback: observation → action, asked when no policy server answers.
        spool_directory: keep on disk, readable by this user, what is not acknowledged yet (trajectories, memories,
            opinions of people), to outlive the process; one process to a directory.
        timeout: seconds for one request; retry_seconds: how long an unreachable server is retried.
    """

    def __init__(
        self,
        agent: str,
        endpoint: str | None = None,
        *,
        data_url: str | None = None,
        memory_url: str | None = None,
        namespace: str | None = None,
        token_file: Path | None = None,
        memory_token_file: Path | None = None,
        fallback: Callable[[Any], Any] | None = None,
        spool_directory: Path | None = None,
        timeout: float = 5.0,
        retry_seconds: float = 10.0,
    ) -> None:
        self.agent = agent
        self.fallback = fallback
        self.counters = errors.Counters()
        self._redactor = default_redactor()
        identity = http_client.Identity(http_client.namespace_of(namespace), token_file)
        address = with_scheme(endpoint or os.environ.get(ENV_ENDPOINT) or "") or _usual_endpoint(agent, identity)
        self._http = http_client.Http()
        patience: dict[str, float] = {"timeout": timeout, "retry_seconds": retry_seconds}
        self.policy = policy_client.PolicyClient(address, self.counters, http=self._http, identity=identity, **patience)
        data_url = with_scheme(data_url or os.environ.get(names.ENV_DATA_URL) or "").rstrip("/")
        memory_url = with_scheme(memory_url or os.environ.get(ENV_MEMORY_URL) or "").rstrip("/") or data_url
        remembering = identity
        if memory_url != data_url:  # a service that is shown this token cannot show it to the data plane
            file = memory_token_file or Path(os.environ.get(names.ENV_MEMORY_TOKEN_FILE) or names.MEMORY_TOKEN_FILE)
            remembering = http_client.Identity(identity.namespace, file)

        def spool(name: str) -> outbox.Spool:
            return outbox.Spool(spool_directory / f"{name}.sqlite" if spool_directory else None)

        memory = outbox.Service(self._http, memory_url, remembering)
        # One after the other: a service that is back is not overloaded.
        memories = outbox.Delivery(spool("memories"), memory.deliver, errors.Counters(), batch=1)
        self.memory = MemoryClient(memory, memories, agent, self._redactor, self.counters)
        data = outbox.Service(self._http, data_url, identity)
        people = outbox.Delivery(spool("people"), data.deliver, errors.Counters())
        self.people = People(people if data_url else None)
        self._data = data
        self.delivery = outbox.Delivery(spool("trajectories"), data.deliver, self.counters) if data_url else None
        if self.delivery is None:
            log.warning("no data_url: episodes are played but not recorded")
        self._deliveries = [memories, people, *([self.delivery] if self.delivery else [])]

    def episode(
        self,
        task: str = "",
        *,
        explore: bool = True,
        revision: str | None = None,
        external: bool = False,
        metadata: Mapping[str, str] | None = None,
        joint_task: str | None = None,
    ) -> Episode:
        """A new episode, opened by `async with`.

        `explore` asks for sampled actions. `external` is for an agent that decides by itself: no policy server is
        asked, and `revision` names the agent's own version in the trajectory. `joint_task` is another agent's
        `Episode.joint_task`, where this episode helps it: its result says what this one earned of it.
        """
        own = (revision or EXTERNAL_REVISION) if external or revision else None
        return Episode(self, task, explore=explore, revision=own, metadata=metadata, joint_task=joint_task)

    async def get_similar_experiences(self, state: Sequence[float], k: int = 5) -> list[dict[str, Any]]:
        """At most `k` recorded steps of this agent that began in the states nearest to `state`, nearest first (wire.
        SimilarExperience): action, reward, next state, distance. Empty where the data plane does not answer."""
        try:
            question = json.dumps({"agent_id": self.agent, "state": [*map(float, state)], "k": k}).encode()
            answer = await self._data.post("/api/v1/experience/similar", question)
        except (errors.SinkDown, errors.Refused) as error:
            if not isinstance(error, errors.NotSent):
                self.counters.memory_failures += 1
                log.warning("%s; going on without it", error)
            return []
        nearest = answer.get("experiences")
        return nearest if isinstance(nearest, list) else []

    @property
    def records(self) -> bool:
        """Are episodes delivered to a data plane?"""
        return self.delivery is not None

    async def spool(self, trajectory: Mapping[str, Any]) -> None:
        """Redact and check one trajectory (wire.Trajectory as plain data), and have it delivered. Never raises into the
        agent."""
        if self.delivery is not None:
            body = encoded(trajectory, self._redactor, self.counters)
            if body is not None:
                await self.delivery.put(outbox.Parcel(str(trajectory["trajectory_id"]), body))

    async def flush(self, patience: float = 10.0) -> int:
        """Wait until all is acknowledged, at most `patience` seconds; returns how many parcels are not."""
        return sum(await asyncio.gather(*(delivery.flush(patience) for delivery in self._deliveries)))

    async def close(self, patience: float = 20.0) -> int:
        """Flush and let go of all connections; returns how many trajectories, memories and opinions stay behind."""
        left = sum(await asyncio.gather(*(delivery.close(patience) for delivery in self._deliveries)))
        await self._http.close()
        return left

    async def __aenter__(self) -> "Learnloop":
        for delivery in self._deliveries:
            delivery.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _usual_endpoint(agent: str, identity: http_client.Identity) -> str:
    """A certificate names the Service in full; without TLS the short name does, wherever the cluster's domain is."""
    if scheme() == "http":
        return f"http://{agent}:{names.PORT_SERVING}"
    return f"https://{agent}.{identity.namespace}.svc:{names.PORT_SERVING}"


def run(main: Coroutine[Any, Any, T]) -> T | None:
    """asyncio.run, where SIGTERM ends `main` as Ctrl-C does: an episode under way is abandoned, and each `async with
    Learnloop(…)` delivers what was recorded. Returns None then. A second SIGTERM ends the process."""

    async def ended_by_signal() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            loop.remove_signal_handler(signal.SIGTERM)
            if task is not None:
                task.cancel()

        loop.add_signal_handler(signal.SIGTERM, end)
        return await main

    try:
        return asyncio.run(ended_by_signal())
    except asyncio.CancelledError:
        return None
