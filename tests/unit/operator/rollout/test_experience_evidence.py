"""Rewards and opinions next to Prometheus' counts: asked once for each window, and missing for a reason."""

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.prometheus.gather_evidence import WithExperience
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence, EvidenceRequest, Window
from learnloop_operator.statistics.e_values import Counts

REWARD = MetricThreshold.model_validate(
    {"name": "r", "type": "reward", "min": 0, "returnRange": {"lowest": 0, "highest": 1}}
)
FEEDBACK = MetricThreshold.model_validate({"name": "f", "type": "feedback", "min": 0})
SUCCESS = MetricThreshold.model_validate({"name": "s", "type": "success", "min": 0.5})


class Counted:
    """A source that has counted twenty episodes of each arm, or cannot be asked."""

    def __init__(self, unavailable: str = "") -> None:
        self.unavailable = unavailable

    async def of_episodes(self, request: EvidenceRequest) -> Evidence:
        if self.unavailable:
            return Evidence(unavailable=self.unavailable)
        return Evidence({window.revision: ArmEvidence(20, 1.0, 0.9, 0.0) for window in request.windows})

    async def of_copies(self, namespace: str, name: str, window: Window) -> Evidence:
        return Evidence(unavailable="copies")


def request_(*metrics: MetricThreshold) -> EvidenceRequest:
    return EvidenceRequest("ns", "md", (Window("aaaa", 30), Window("bbbb", 30)), metrics)


def answer(*revisions: dict) -> dict:
    empty = {"episodes": 0, "rewarded": 0, "reward_sum": 0.0, "rated": 0, "feedback_sum": 0.0}
    return {"seconds": 30, "revisions": [empty | item for item in revisions]}


async def test_both_arms_of_one_window_are_asked_for_in_one_request(wire) -> None:
    one = {"revision": "aaaa", "episodes": 9, "rewarded": 8, "reward_sum": 4.0, "rated": 2, "feedback_sum": -1.0}
    other = {"revision": "bbbb", "episodes": 7, "rewarded": 7, "reward_sum": 1.0, "rated": 1, "feedback_sum": 1.0}
    wire.answer(200, answer(one, other))
    client = DataPlane(wire.url, "/nonexistent", timeout=60)
    evidence = await WithExperience(Counted(), client).of_episodes(request_(REWARD, FEEDBACK))
    await client.close()
    assert evidence.arms["aaaa"].rewards == Counts(8, 4.0)
    assert evidence.arms["aaaa"].opinions == Counts(2, -1.0)
    assert evidence.arms["bbbb"].rewards == Counts(7, 1.0)
    assert evidence.arms["bbbb"].episodes == 20
    assert wire.requests == [("GET", "/api/v1/models/md/outcomes?seconds=30&revision=aaaa&revision=bbbb", b"")]


async def test_nobody_asks_the_data_plane_where_no_metric_needs_it() -> None:
    client = DataPlane("http://nowhere.invalid", "/nonexistent")
    evidence = await WithExperience(Counted(), client).of_episodes(request_(SUCCESS))
    assert evidence.arms["aaaa"].problems == {}
    assert (await WithExperience(Counted(), client).of_copies("ns", "md", Window("aaaa", 3))).unavailable == "copies"


async def test_a_data_plane_that_is_down_or_older_holds_only_what_needs_it(wire) -> None:
    wire.answer(503, {"error": {"message": "PostgreSQL is down"}})
    wire.answer(404, {"error": {"message": "no such route"}})
    client = DataPlane(wire.url, "/nonexistent", timeout=60)
    source = WithExperience(Counted(), client)
    for message in ("PostgreSQL is down", "the data plane has no /api/v1/models/md/outcomes"):
        arm = (await source.of_episodes(request_(REWARD, SUCCESS))).arms["aaaa"]
        assert set(arm.problems) == {"r"}
        assert arm.problems["r"].reason == reasons.PROVIDER_DOWN
        assert message in arm.problems["r"].text
        assert (arm.success_rate, arm.rewards) == (0.9, None)
    await client.close()


async def test_an_arm_without_rewards_or_opinions_says_which_step_is_missing(wire) -> None:
    wire.answer(200, answer({"revision": "aaaa", "episodes": 5}, {"revision": "bbbb"}))
    client = DataPlane(wire.url, "/nonexistent", timeout=60)
    evidence = await WithExperience(Counted(), client).of_episodes(request_(REWARD, FEEDBACK))
    await client.close()
    assert "give the agent a RewardPolicy" in evidence.arms["aaaa"].problems["r"].text
    assert "was rated" in evidence.arms["aaaa"].problems["f"].text
    assert "record episodes with model_deployment md" in evidence.arms["bbbb"].problems["r"].text


async def test_a_source_that_cannot_be_asked_stays_the_reason(wire) -> None:
    wire.answer(200, answer({"revision": "aaaa"}, {"revision": "bbbb"}))
    client = DataPlane(wire.url, "/nonexistent", timeout=60)
    evidence = await WithExperience(Counted("Prometheus is away"), client).of_episodes(request_(REWARD))
    await client.close()
    assert evidence.unavailable == "Prometheus is away"
