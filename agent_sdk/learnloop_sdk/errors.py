"""Errors that an agent can act on, and counters of what the SDK did."""

from dataclasses import asdict, dataclass


class LearnloopError(Exception):
    """Base of everything this SDK raises."""


class PolicyUnavailable(LearnloopError):
    """No policy server answered within the retry window, and there is no fallback."""


class PolicyFailed(LearnloopError):
    """The policy server answered that its policy failed on this observation."""


class PolicyRefused(LearnloopError):
    """The policy server does not serve this caller: its token is missing, has ended, or is of another namespace."""


class FallbackOrdered(PolicyUnavailable):
    """A person has ordered that the agent's own fallback decides. Episodes obey by themselves where there is one."""


class Stopped(LearnloopError):
    """A person has ordered that this agent gets no answer; the message says who, until when and why. No fallback takes
    its place: end what the agent does."""


class Throttled(LearnloopError):
    """The ModelDeployment has given as many decisions as it may. The episode goes on: wait, and act again in it.

    Attributes:
        retry_after: seconds.
    """

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidObservation(LearnloopError):
    """The observation is not one the served policy takes; the message says what it takes."""


class ArmWithdrawn(LearnloopError):
    """The arm that owns the episode was taken away. Episodes handle this themselves."""


class SinkDown(LearnloopError):
    """A place for trajectories is not there right now; the trajectory is kept and sent later."""


class TrajectoryRejected(LearnloopError):
    """The data plane will never take this trajectory; sending it again is no use."""


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
    posts_kept: int = 0

    def snapshot(self) -> dict[str, int]:
        """All counts by name."""
        return asdict(self)
