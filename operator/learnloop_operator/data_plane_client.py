"""Client of the data plane's REST contract: stats, runs, registrations."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
from pydantic import BaseModel, ValidationError

from learnloop_api import names
from learnloop_api.wire import reward, training, training_request
from learnloop_api.wire.deployment import DeploymentOutcomes, GateReports
from learnloop_operator.core.plan import Call
from learnloop_operator.http_session import HttpSession, TooLarge, read_bounded

log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

MAX_ANSWER = 4 * 1024 * 1024
DRY_RUN_SECONDS = 45.0


class DataPlaneUnavailable(Exception):
    """No usable answer: unreachable, too slow, 5xx, or an answer that breaks the contract. Hold, never crash."""


class DataPlaneRefused(Exception):
    """A 4xx other than 404: the request itself is wrong; carries the data plane's own sentence."""


class DataPlane(HttpSession):
    """Every request takes at most `timeout` seconds and acts for the namespace given with it.

    `guard` is called before every write and raises when this process does not lead.
    """

    def __init__(
        self,
        url: str,
        token_file: str = names.TOKEN_FILE,
        timeout: float = 5.0,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(timeout)
        self.url, self._guard = url.rstrip("/"), guard
        self._token_file = Path(token_file)

    async def stats(self, namespace: str, agent: str) -> reward.AgentStats | None:
        """Experience of one agent; None when it is not registered."""
        return await self._read(reward.AgentStats, namespace, f"/api/v1/agents/{agent}/stats")

    async def reward_signals(self, namespace: str, policy: str, revision: str) -> reward.RewardSignals | None:
        """Signs of reward hacking under a revision; None when the data plane does not know it."""
        return await self._read(
            reward.RewardSignals, namespace, f"/api/v1/rewards/policies/{policy}/revisions/{revision}/signals"
        )

    async def outcomes(
        self, namespace: str, deployment: str, revisions: Sequence[str], seconds: int
    ) -> DeploymentOutcomes:
        """Rewards and opinions of the episodes of each revision that arrived in the last `seconds`."""
        wanted = urlencode([("seconds", seconds), *(("revision", item) for item in revisions)])
        path = f"/api/v1/models/{deployment}/outcomes?{wanted}"
        return _present(await self._read(DeploymentOutcomes, namespace, path), path)

    async def dry_run(self, namespace: str, policy: Mapping[str, Any], limit: int) -> reward.DryRunFigures | None:
        """Tries a RewardPolicySpec on the newest `limit` logged episodes. It writes nothing, and takes seconds."""
        return await self._read(
            reward.DryRunFigures,
            namespace,
            "/api/v1/rewards/dry-run",
            {"policy": policy, "limit": limit},
            DRY_RUN_SECONDS,
        )

    async def reward_bias(self, namespace: str, policy: Mapping[str, Any], name: str) -> reward.BiasFigures | None:
        """Has a RewardPolicySpec with a bias check tried on the episodes of agents that use the policy `name`."""
        body = {"policy": policy, "reward_policy": name}
        return await self._read(reward.BiasFigures, namespace, "/api/v1/rewards/bias", body, DRY_RUN_SECONDS)

    async def run(self, namespace: str, job: str) -> training.TrainingRun | None:
        """All the data plane knows of a training run; None when nothing was ever reported."""
        return await self._read(training.TrainingRun, namespace, f"/api/v1/training/runs/{job}")

    async def study(self, namespace: str, job: str) -> training_request.StudyState | None:
        return await self._read(training_request.StudyState, namespace, f"/api/v1/training/studies/{job}")

    async def gate_reports(self, namespace: str, deployment: str) -> GateReports:
        """The newest reports of a ModelDeployment's gate suites."""
        path = f"/api/v1/models/{deployment}/gates"
        return _present(await self._read(GateReports, namespace, path), path)

    async def call(self, namespace: str, call: Call) -> None:
        """Do one write of a plan. Deleting what is not there is a success.

        Raises:
            DataPlaneUnavailable: try again later.
            DataPlaneRefused: the same request will never be accepted.
            NotLeading: by the guard.
        """
        self._guard()
        status, body = await self._request(call.method, namespace, call.path, call.body)
        if status < 300 or (status == 404 and call.method == "DELETE"):
            return
        raise DataPlaneRefused(f"{call.method} {call.path}: {status} {_message(body)}")

    async def _read(
        self, model: type[M], namespace: str, path: str, question: Any = None, seconds: float | None = None
    ) -> M | None:
        method = "GET" if question is None else "POST"
        status, body = await self._request(method, namespace, path, question, seconds)
        if status == 404:
            return None
        if status >= 300:
            raise DataPlaneUnavailable(f"the data plane refused {method} {path}: {status} {_message(body)}")
        try:
            return model.model_validate(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise DataPlaneUnavailable(
                f"the data plane's answer to {method} {path} breaks the contract at {where}: {first['msg']}"
            ) from None

    async def _request(
        self, method: str, namespace: str, path: str, body: Any, seconds: float | None = None
    ) -> tuple[int, Any]:
        headers = {names.HEADER_NAMESPACE: namespace}
        with suppress(FileNotFoundError):  # the kubelet renews it; a memory file system answers in microseconds
            headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"
        timeout = aiohttp.ClientTimeout(total=seconds or self._seconds)
        try:
            async with self.session.request(
                method, self.url + path, json=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                answer = _parse(await read_bounded(response, MAX_ANSWER))
                status = response.status
        except (aiohttp.ClientError, TimeoutError, TooLarge) as error:
            reason = str(error) or type(error).__name__
            raise DataPlaneUnavailable(f"the data plane at {self.url} does not answer: {reason}") from error
        if status >= 500 or status == 429:
            raise DataPlaneUnavailable(f"the data plane answered {method} {path} with {status}: {_message(answer)}")
        return status, answer


def _present(answer: M | None, path: str) -> M:
    if answer is None:
        raise DataPlaneUnavailable(f"the data plane has no {path}")
    return answer


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return None


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        field = f"{error['field']}: " if error.get("field") else ""
        return f"{field}{error.get('message', '')}"[:500]
    return "(no message)"
