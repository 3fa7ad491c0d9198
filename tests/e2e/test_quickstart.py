"""The main job: the quickstart learns, and a bad model is rolled back."""

from demo import bad_model
from demo.learning import Learned
from demo.settings import AGENT, Settings


def test_the_quickstart_learns_and_its_policy_reaches_every_user(learned: tuple[Settings, Learned]) -> None:
    _, result = learned
    assert result.baseline_return <= 30
    assert result.promoted_return >= 400
    assert result.training_workers == 2


def test_a_sabotaged_model_is_rolled_back_at_its_first_step(api, rig, learned, narrator):
    settings, result = learned
    back = bad_model.watch_it_come_back(api, settings, narrator, result.model_uri, result.model_sha256)
    bad_model.restore(api, settings)
    assert back.max_weight <= 10
    assert "return" in back.sentence
    # Until a test follows it again its actors take no core from others.
    rig.patch(settings.namespace, "learningagent", AGENT, {"spec": {"suspend": True}})
