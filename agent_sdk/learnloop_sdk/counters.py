"""What the SDK did, as plain numbers: an agent exports them with whatever it uses for metrics."""

from dataclasses import asdict, dataclass


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
