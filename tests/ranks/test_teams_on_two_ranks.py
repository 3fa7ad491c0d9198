"""Team, hierarchical and climbing runs on two ranks: both see the same updates, and one proof comes out."""

import pytest

from learnloop_trainer.store.run_store import DirectoryStore
from testing.servers.ports import held_port

SMALL = {"environments": 4, "hidden": [8], "bufferSize": 1000, "learningStarts": 64, "batchSize": 32}
DQN = {**SMALL, "curiosity": {"hidden": [8], "features": 4}}
CLIMB = {"minEpisodes": 4, "window": 4, "promoteAt": 0.1, "demoteBelow": 0, "until": "intermediate"}
CASES = {
    "qmix": {"hyperparameters": SMALL, "data": {"environment": "teams:TwoStep"}},
    "maddpg": {"hyperparameters": SMALL, "data": {"environment": "teams:Relay"}},
    "hierarchical-dqn": {"hyperparameters": SMALL, "data": {"environment": "grids:KeyDoor"}},
    "dqn": {"hyperparameters": DQN, "data": {"environment": "grids:Exploration"}, "curriculum": CLIMB},
}


@pytest.mark.parametrize("algorithm", CASES)
def test_two_ranks_stay_equal_and_prove_one_result(launch, small, tmp_path, algorithm):
    order = small(algorithm, 4096, **CASES[algorithm])
    with held_port() as port:
        shared = {"WORLD_SIZE": "2", "MASTER_PORT": str(port), "MASTER_ADDR": "127.0.0.1"}
        both = [launch(order, RANK=str(rank), LEARNLOOP_STORE=f"file://{tmp_path}/s", **shared) for rank in range(2)]
        ends = [rank.ended() for rank in both]
    assert [code for code, _ in ends] == [0, 0], ends  # a checkpoint of unequal weights would have ended the group
    proof = DirectoryStore(tmp_path / "s", "small-1").proof()
    assert (proof.world_size, proof.algorithm, proof.parity.passed) == (2, algorithm, True)
    if "curriculum" in CASES[algorithm]:
        assert all("up to level intermediate" in output for _, output in ends)
