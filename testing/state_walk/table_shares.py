"""The shares of a routing table, and the faults that it must never have."""

from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.rollout.state.rollout_state import ArmState, State


def shares(state: State) -> tuple[ArmState | None, ArmState | None, ArmState | None, int | None, int]:
    """All that the weights of a table without an experiment follow from."""
    return state.stable, state.canary, state.previous, state.step, state.weight


def unfair(table: RoutingTable, most: int) -> list[str]:
    """Users without an arm or with two, a canary above the weight of its step, and stable below its floor.

    `most`: percent that the canary may have, which leaves stable the rest as its floor.
    """
    stable = [arm.weight for arm in table.arms if arm.role == "stable"]
    canaries = sum(arm.weight for arm in table.arms if arm.role == "canary")
    cases = (
        (len(stable) != 1, f"{len(stable)} arms are stable"),
        (sum(stable) + canaries != 100, f"the weights of the table add up to {sum(stable) + canaries} %"),
        (canaries > most, f"the table gives canaries {canaries} %, {most} % are allowed"),
        (sum(stable) < 100 - most, f"stable is left {sum(stable)} %, its floor is {100 - most} %"),
    )
    return [text for broken, text in cases if broken]
