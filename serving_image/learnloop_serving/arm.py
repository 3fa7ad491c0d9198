"""The arm of one server process: its policy, and the verbs of the episodes API, answered and measured."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import orjson
from starlette.responses import Response

from learnloop_api.wire.routing import Override
from learnloop_common.acting.policy import Policy, PolicyError, written
from learnloop_serving import callers, episode_ids, server_metrics
from learnloop_serving.episodes import Episodes
from learnloop_serving.refusals import Apart, Refusal, refused
from learnloop_serving.settings import Settings

log = logging.getLogger(__name__)
SLOW_POLICY_SECONDS = 0.005
Outcome = Literal["fine", "arm"] | Apart
"""Outcome of a request: evidence for this arm, against it, or the reason why it is not evidence."""
NEW = episode_ids.Opening("")
"""The episode of a request that opens one."""


class Arm:
    """State of one server process, and the verbs of the episodes API."""

    def __init__(self, settings: Settings, episodes: Episodes, metrics: server_metrics.Metrics) -> None:
        self.settings = settings
        self.episodes = episodes
        self.metrics = metrics
        self.callers = callers.Callers(settings.caller_keys, settings.served_namespaces)
        self.draining = False
        self.drain_seconds = settings.drain_seconds
        self.offload = False
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")
        self._revision_json = orjson.dumps(settings.revision)

    @property
    def ready(self) -> bool:
        """May this pod get requests?"""
        return self.episodes.ready and not self.draining

    def install(self, policy: Policy, seconds_per_run: float) -> None:
        """Start serving `policy`; a slow one runs on a thread of its own, so that probes are still answered."""
        self.offload = seconds_per_run > SLOW_POLICY_SECONDS
        self.episodes.policy = policy

    async def on_policy_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run `work` on the one policy thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)

    async def answer(self, verb: str, episode_id: str, arm: str | None, body: bytes) -> Response:
        """Answer a verb and measure it; never raises. Episodes of other ModelDeployments are not measured."""
        opening = NEW if verb == "open" else self.episodes.ids.read(episode_id)
        if opening is None:
            self.metrics.unproven[verb].inc()
            return refused(_unknown(episode_id))
        start = time.perf_counter()
        answer, outcome = await self._result(verb, opening, arm, body)
        self._count(verb, opening, outcome, time.perf_counter() - start)
        return answer

    def _count(self, verb: str, opening: episode_ids.Opening, outcome: Outcome, seconds: float) -> None:
        """Count a request as evidence of this arm, unless its caller is at fault, a person decided, or its episode
        failed before."""
        if outcome not in ("fine", "arm"):
            self.metrics.apart[verb, outcome].inc()
            return
        if outcome == "arm" and verb == "act" and not self.episodes.fails_first(opening):
            self.metrics.apart["act", "again"].inc()
            return
        if outcome == "arm":
            self.metrics.failed(verb)
        self.metrics.observe[verb](seconds)

    async def _result(
        self, verb: str, opening: episode_ids.Opening, arm: str | None, body: bytes
    ) -> tuple[Response, Outcome]:
        try:
            if verb == "act" and (override := self.episodes.by_person(opening)) is not None:
                return _json(self._fixed(override)), "overridden"
            if verb == "act":
                self.episodes.count_decision(opening)
            return _json(await self._do(verb, opening, arm, body)), "fine"
        except Refusal as refusal:
            return refused(refusal), refusal.apart or "fine"
        except PolicyError as error:
            log.error("policy failed: %s", error)
            return refused(Refusal(500, "PolicyError", str(error))), "arm"
        except Exception:  # a policy must not end the server
            log.exception("%s failed", verb)
            return refused(Refusal(500, "PolicyError", "internal error, see the server's log")), "arm"

    def _fixed(self, override: Override) -> bytes:
        """The action that a person has ordered, whatever was observed: it is certain, so its log-probability is 0."""
        action = override.choice if override.choice is not None else override.numbers
        fields = {"action": action, "log_prob": 0.0, "exploration": False, "revision": self.settings.revision}
        return orjson.dumps(fields | {"override": "fixed"})

    async def _do(self, verb: str, opening: episode_ids.Opening, arm: str | None, body: bytes) -> bytes:
        if verb == "act":
            if self.offload:
                decision = await self.on_policy_thread(self.episodes.act, opening, arm, body)
            else:
                decision = self.episodes.act(opening, arm, body)
            value = b"" if decision.q_value is None else b',"q_value":%b' % orjson.dumps(decision.q_value)
            if decision.memory is not None:
                value += b',"memory":"%b"' % written(decision.memory).encode()
            if decision.intervened is not None:
                value += b',"intervened":%b' % (b"true" if decision.intervened else b"false")
            return b'{"action":%b,"log_prob":%b,"exploration":%b,"revision":%b%b}' % (
                orjson.dumps(decision.action),
                orjson.dumps(decision.log_prob),
                b"true" if decision.drawn else b"false",
                self._revision_json,
                value,
            )
        if verb == "open":
            return self.episodes.open(body).model_dump_json().encode()
        return b'{"counted":true}' if self.episodes.end(opening, arm, body) else b'{"counted":false}'


def _unknown(episode_id: str) -> Refusal:
    message = f"episode_id: {episode_id[:128]!r} was opened by no server of this ModelDeployment: open an episode first"
    return Refusal(404, "UnknownEpisode", message)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
