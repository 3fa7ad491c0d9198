"""The main job: the quickstart learns, and a bad model is rolled back."""

from demo.learning import Learned
from demo.settings import Settings
from testing.real_cluster.followed_sabotage import FollowedSabotage


def test_the_quickstart_learns_and_its_policy_reaches_every_user(learned: tuple[Settings, Learned]) -> None:
    _, result = learned
    assert result.baseline_return <= 30
    assert result.promoted_return >= 400
    assert result.training_workers == 2


def test_a_sabotaged_model_is_rolled_back_at_its_first_step(sabotage: FollowedSabotage) -> None:
    assert sabotage.back.max_weight <= 10
    assert sabotage.back.rollback_seconds <= 60
    assert "return" in sabotage.back.sentence
