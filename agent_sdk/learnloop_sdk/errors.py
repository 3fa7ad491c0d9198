"""Errors that an agent can act on, and counters of what the SDK did."""

from dataclasses import asdict, dataclass


class LearnloopError(Exception):
    """Base of all errors of this SDK."""


class PolicyUnavailable(LearnloopError):
    """No policy server answered within the retry window, and the agent has no fallback."""


class PolicyFailed(LearnloopError):
    """The policy failed on this observation."""


class PolicyRefused(LearnloopError):
    """The policy server rejects the caller's token: it is missing, expired, or of another namespace."""


class FallbackOrdered(PolicyUnavailable):
    """An operator's override orders the agent's own fallback. An episode that has one uses it."""


class Stopped(LearnloopError):
    """An operator's override stops this agent; the message gives author, end and reason. No fallback replaces it."""


class Throttled(LearnloopError):
    """The ModelDeployment's rate limit is reached. Wait `retry_after` seconds, then act again in the same episode."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidObservation(LearnloopError):
    """The served policy does not accept the observation; the message says which it accepts."""


class ArmWithdrawn(LearnloopError):
    """The arm of the episode was withdrawn. Episodes handle this themselves."""


class SinkDown(LearnloopError):
    """The service cannot be reached now; the parcel is kept and sent later."""


class NotSent(SinkDown):
    """The service has no address, or it did not answer a moment ago."""


class Refused(LearnloopError):
    """The service rejects the parcel for good; it is not sent again."""


class EnvironmentBroken(RuntimeError):
    """An environment raised; another episode would end the same way."""


@dataclass
class Counters:
    """Counts since the Learnloop was made; they never fall."""

    episodes_opened: int = 0
    episodes_completed: int = 0
    episodes_failed: int = 0
    episodes_withdrawn: int = 0
    episodes_abandoned: int = 0
    actions: int = 0
    actions_by_fallback: int = 0
    actions_overridden: int = 0
    request_retries: int = 0
    end_failures: int = 0
    trajectories_recorded: int = 0
    trajectories_delivered: int = 0
    trajectories_rejected: int = 0
    trajectories_dropped: int = 0
    delivery_failures: int = 0
    memory_failures: int = 0

    def snapshot(self) -> dict[str, int]:
        """All counts by name."""
        return asdict(self)
