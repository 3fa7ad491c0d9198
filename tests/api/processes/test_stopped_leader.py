"""Leading processes that are stopped (SIGSTOP) in the middle of a rollout and go on when another one leads."""

from pathlib import Path

import pytest

from learnloop_operator.adapters.leadership.dead_man_switch import STATUS
from testing.operators.stopped_leaders import stopped_rollout

STOPS = 4


@pytest.mark.parametrize("armed", [True, False])
async def test_a_leader_that_was_stopped_writes_nothing_after_another_one_wrote(
    api_server: Path, tmp_path: Path, armed: bool
) -> None:
    found = await stopped_rollout(api_server, tmp_path, STOPS, every=2, mode="service", armed=armed)
    if found.returned and not armed:
        # Rarely one is stopped between the guard's question and the system calls that send, which aiohttp makes a turn
        # of the loop later: the switch is there for that (decision 28). Without a guard ten writes came back.
        found = await stopped_rollout(api_server, tmp_path / "again", STOPS, every=2, mode="service", armed=armed)
    assert len(found.stops) == STOPS, found.stops
    assert found.leaders == STOPS + 1, "each stop made another process lead"
    assert found.returned == []
    assert found.codes == [STATUS if armed else 1] * STOPS, "ended by the kernel, or by itself as who was replaced"
    assert found.generations == sorted(set(found.generations)), "a routing table came back"
    assert not found.different
