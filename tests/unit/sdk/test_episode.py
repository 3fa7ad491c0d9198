from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.serving.test_overrides import ordered

from learnloop_api.wire.trajectory import MAX_STEPS, Trajectory
from learnloop_sdk import (
    InvalidObservation,
    Learnloop,
    LearnloopError,
    PolicyFailed,
    PolicyUnavailable,
    Stopped,
    Throttled,
)
from learnloop_sdk.errors import FallbackOrdered
from learnloop_serving.episode_ids import EpisodeIds, Seal
from learnloop_serving.policy_loader import UniformPolicy
from testing.servers.policy_servers import CANARY, STABLE, LiveServer, table

OBSERVATION = [0.1, 0.2, 0.3, 0.4]
Make = Callable[..., Learnloop]


async def recorded(loop: Learnloop, data_plane) -> list[Trajectory]:
    assert await loop.flush(60) == 0
    return [Trajectory.model_validate_json(body) for body in data_plane.bodies()]


async def test_an_episode_is_acted_recorded_and_ended(learn: Make, arms, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    before = arms.stable.metric("learnloop_episodes_ended_total", outcome="success")
    async with loop.episode("balance", metadata={"seed": "7"}) as episode:
        for step in range(3):
            action = await episode.act(np.array(OBSERVATION, dtype=np.float32))
            assert action in (0, 1)
            episode.record(action, 1.0, terminated=step == 2)
        episode.outcome(True, tool_errors=0)
    (trajectory,) = await recorded(loop, data_plane)
    assert (trajectory.agent, trajectory.task, trajectory.policy_revision) == ("cart", "balance", STABLE)
    assert (trajectory.outcome.episode_return, trajectory.outcome.success) == (3.0, True)
    assert trajectory.outcome.values == {"tool_errors": 0.0}
    assert trajectory.model_deployment == "cart"
    assert [step.terminated for step in trajectory.steps] == [False, False, True]
    assert all(step.log_prob == pytest.approx(-0.6931, abs=1e-3) and step.exploration for step in trajectory.steps)
    assert arms.stable.metric("learnloop_episodes_ended_total", outcome="success") == before + 1


async def test_a_withdrawn_arm_hands_the_episode_to_stable(learn: Make, arms, data_plane) -> None:
    arms.weigh(100)
    loop = learn(data_url=data_plane.url)
    before = arms.canary.metric("learnloop_episodes_ended_total", outcome="withdrawn")
    async with loop.episode("t") as episode:
        assert episode.revision == CANARY
        episode.record(await episode.act(OBSERVATION), 1.0)
        arms.weigh(None)
        episode.record(await episode.act(OBSERVATION), 2.0)
        assert episode.revision == STABLE
        episode.record(await episode.act(OBSERVATION), 3.0, terminated=True)
    first, second = sorted(await recorded(loop, data_plane), key=lambda sent: "continues" in sent.metadata)
    assert (first.policy_revision, first.outcome.status, len(first.steps)) == (CANARY, "withdrawn", 1)
    assert (second.policy_revision, second.outcome.status, len(second.steps)) == (STABLE, "completed", 2)
    assert (first.outcome.episode_return, second.outcome.episode_return) == (1.0, 5.0)
    assert second.metadata["continues"] == first.episode_id
    assert first.last_observation == OBSERVATION, "what it was asked about and could not answer any more"
    assert second.last_observation is None, "not given"
    assert episode.episode_return == 6.0
    assert loop.counters.episodes_withdrawn == 1
    assert arms.canary.metric("learnloop_episodes_ended_total", outcome="withdrawn") == before + 1


async def test_an_arm_that_does_not_know_its_episode_hands_it_to_stable(learn, arms, data_plane, monkeypatch):
    monkeypatch.setattr(arms.canary.arm.episodes, "ids", EpisodeIds("cart", Seal()))  # its key was replaced
    arms.weigh(100)
    loop = learn(data_url=data_plane.url)
    async with loop.episode("t") as episode:
        assert episode.revision == CANARY
        episode.record(await episode.act(OBSERVATION), 1.0, terminated=True)
        assert episode.revision == STABLE
    [only] = await recorded(loop, data_plane)
    assert (only.policy_revision, only.outcome.status) == (STABLE, "completed")


async def test_an_arm_whose_pods_are_gone_hands_the_episode_to_stable(learn: Make, arms, data_plane) -> None:
    gone = LiveServer(revision="dddddddd").start()
    text = table((STABLE, "stable", 0, arms.stable.url), ("dddddddd", "canary", 100, gone.url))
    gone.route(text)
    arms.stable.route(text)
    loop = learn(data_url=data_plane.url)
    async with loop.episode() as episode:
        episode.record(await episode.act(OBSERVATION), 1.0)
        gone.stop()
        episode.record(await episode.act(OBSERVATION), 1.0, terminated=True)
    first, second = sorted(await recorded(loop, data_plane), key=lambda sent: "continues" in sent.metadata)
    assert (first.policy_revision, first.outcome.status) == ("dddddddd", "error")
    assert (second.policy_revision, second.outcome.status) == (STABLE, "completed")
    assert loop.counters.end_failures == 1


async def test_gateway_mode_sends_the_arm_with_every_request(learn: Make) -> None:
    server = LiveServer(revision=CANARY, mode="gateway").start()
    server.route(table((STABLE, "stable", 50), (CANARY, "canary", 50), mode="gateway"))
    loop = learn(endpoint=server.url)
    async with loop.episode() as episode:
        episode.record(await episode.act(OBSERVATION), 1.0, terminated=True)
    assert server.metric("learnloop_episodes_ended_total", outcome="success") == 1
    server.stop()


async def test_without_a_server_the_error_is_typed_and_comes_in_time(learn: Make, free_port: int) -> None:
    for window in (0.3, 3.0, 30.0):  # a machine that needs the whole window for one attempt gets a longer one
        loop = learn(endpoint=f"http://127.0.0.1:{free_port}", retry_seconds=window)
        with pytest.raises(PolicyUnavailable, match="does not answer"):
            async with loop.episode():
                pass
        if loop.counters.request_retries >= 1:
            return
    pytest.fail("a server that does not answer was asked only once")


async def test_without_a_server_the_fallback_decides(learn: Make, data_plane, free_port: int) -> None:
    loop = learn(endpoint=f"http://127.0.0.1:{free_port}", data_url=data_plane.url, fallback=lambda _: np.int64(1))
    async with loop.episode() as episode:
        assert await episode.act(OBSERVATION) == 1
        episode.record(reward=1.0, terminated=True)
    (trajectory,) = await recorded(loop, data_plane)
    assert trajectory.policy_revision == "fallback"
    assert trajectory.steps[0].log_prob is None


async def test_a_server_that_comes_back_within_the_window_is_waited_for(learn: Make) -> None:
    server = LiveServer(policy=None).start()
    server.route(table((STABLE, "stable", 100, server.url)))
    loop = learn(endpoint=server.url, retry_seconds=60.0)
    async with loop.episode() as episode:
        import asyncio

        asyncio.get_running_loop().call_later(0.2, server.arm.install, UniformPolicy(2, 4), 0.0)
        assert await episode.act(OBSERVATION) in (0, 1)
    server.stop()


async def test_a_wrong_observation_is_an_error_of_the_episode(learn: Make, arms, data_plane) -> None:
    before = arms.stable.metric("learnloop_episodes_ended_total", outcome="error")
    for observation in ([1.0], [float("nan")] * 4, ["a"], None):
        with pytest.raises(InvalidObservation):
            async with learn(data_url=data_plane.url).episode() as episode:
                await episode.act(observation)
    assert arms.stable.metric("learnloop_episodes_ended_total", outcome="error") == before + 4
    assert data_plane.bodies() == []


async def test_a_broken_policy_is_named(learn: Make) -> None:
    class Broken(UniformPolicy):
        def run(self, observation: object):
            raise ZeroDivisionError

    server = LiveServer(policy=Broken(2, 4)).start()
    server.route(table((STABLE, "stable", 100, server.url)))
    with pytest.raises(PolicyFailed):
        async with learn(endpoint=server.url).episode() as episode:
            await episode.act(OBSERVATION)
    server.stop()


async def test_an_action_of_the_agents_own_has_no_log_probability(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    async with loop.episode() as episode:
        action = await episode.act(OBSERVATION)
        episode.record(1 - action, 0.0)
        episode.record({"tool": "search"}, 0.5, observation="what the user said")
        with pytest.raises(LearnloopError, match="give action and observation"):
            episode.record(reward=1.0)
        with pytest.raises(LearnloopError, match="finite"):
            episode.record(1, float("inf"), observation=[1.0])
    (trajectory,) = await recorded(loop, data_plane)
    assert [step.log_prob for step in trajectory.steps] == [None, None]
    assert trajectory.steps[0].observation == OBSERVATION


async def test_an_episode_cut_off_from_outside_counts_for_nobody(learn: Make, arms, data_plane) -> None:
    import asyncio

    loop = learn(data_url=data_plane.url)
    before = arms.stable.metrics.render()

    async def play() -> None:
        async with loop.episode() as episode:
            episode.record(await episode.act(OBSERVATION), 1.0)
            await asyncio.sleep(60)

    task = asyncio.create_task(play())
    while loop.counters.actions == 0:  # noqa: ASYNC110 - waiting for the code under test
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert loop.counters.episodes_abandoned == 1
    assert await recorded(loop, data_plane) == []

    def ended(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if b"episodes_ended_total" in line]

    assert ended(arms.stable.metrics.render()) == ended(before)


async def test_an_endless_episode_keeps_its_first_steps_and_says_so(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    async with loop.episode(external=True, revision="v1") as episode:
        for number in range(MAX_STEPS + 2):
            episode.record(0, 1.0, observation=[float(number)], next_observation=[number + 1.0])
    (trajectory,) = await recorded(loop, data_plane)
    assert len(trajectory.steps) == MAX_STEPS
    assert trajectory.steps[-1].truncated
    assert trajectory.metadata["unrecorded_steps"] == "2"
    assert trajectory.last_observation == [float(MAX_STEPS)], "the first that is not recorded any more"
    assert trajectory.outcome.episode_return == MAX_STEPS + 2


async def test_what_a_person_decides_is_neither_recorded_nor_reported(learn: Make, arms, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    before = arms.stable.metric("learnloop_episodes_ended_total", outcome="withdrawn")
    async with loop.episode("t") as episode:
        episode.record(await episode.act(OBSERVATION), 1.0)
        arms.stable.route(table((STABLE, "stable", 100, arms.stable.url), overrides=[ordered("fixed", choice=1)]))
        episode.segment.memory = "AAAA"
        assert (await episode.act(OBSERVATION), episode.segment.memory) == (1, "AAAA")
        episode.record(None, 2.0)
        assert episode.revision == "override"
        arms.weigh(None)
        episode.record(await episode.act(OBSERVATION), 4.0, terminated=True)
    (trajectory,) = await recorded(loop, data_plane)
    assert (trajectory.policy_revision, trajectory.outcome.status, len(trajectory.steps)) == (STABLE, "withdrawn", 1)
    assert (episode.episode_return, loop.counters.actions_overridden) == (7.0, 1)
    assert arms.stable.metric("learnloop_episodes_ended_total", outcome="withdrawn") == before + 1


async def test_the_agents_own_fallback_decides_where_a_person_orders_it(learn, arms, data_plane):
    loop = learn(data_url=data_plane.url, fallback=lambda observation: 0)
    arms.stable.route(table((STABLE, "stable", 100, arms.stable.url), overrides=[ordered("fallback")]))
    async with loop.episode("t") as episode:
        assert (await episode.act(OBSERVATION), episode.revision) == (0, "fallback")
        episode.record(None, 1.0, terminated=True)
    assert not await recorded(loop, data_plane)
    without = learn(data_url=data_plane.url)
    with pytest.raises(FallbackOrdered, match="as ordered by alice"):
        async with without.episode("t"):
            pass


async def test_a_stop_ends_the_episode_and_no_fallback_takes_its_place(learn: Make, arms, data_plane) -> None:
    loop = learn(data_url=data_plane.url, fallback=lambda observation: 0)
    before = arms.stable.metric("learnloop_episodes_ended_total", outcome="withdrawn")

    async def play() -> None:
        async with loop.episode("t") as episode:
            episode.record(await episode.act(OBSERVATION), 1.0)
            arms.stable.route(table((STABLE, "stable", 100, arms.stable.url), overrides=[ordered("stop")]))
            await episode.act(OBSERVATION)

    with pytest.raises(Stopped, match="it hurts"):
        await play()
    (trajectory,) = await recorded(loop, data_plane)
    assert (trajectory.outcome.status, loop.counters.episodes_failed) == ("withdrawn", 0)
    assert arms.stable.metric("learnloop_episodes_ended_total", outcome="withdrawn") == before + 1


async def test_a_throttled_agent_waits_and_one_that_gives_up_is_no_arms_error(learn, arms, data_plane):
    loop = learn(data_url=data_plane.url, retry_seconds=5)
    arm = {"revision": STABLE, "role": "stable", "weight": 100, "url": arms.stable.url, "share": 1.0}
    arms.stable.route(table(arms=[arm], limits={"per_second": 1}))
    errors = arms.stable.metric("learnloop_episodes_ended_total", outcome="error")
    retries = loop.counters.request_retries
    async with loop.episode("t") as episode:
        for _ in range(2):
            episode.record(await episode.act(OBSERVATION), 1.0)
    assert loop.counters.request_retries > retries, "it came back at the given time"
    arms.stable.route(table(arms=[arm], limits={"per_second": 0.02}))

    async def play() -> None:
        async with loop.episode("t") as episode:
            for _ in range(2):
                await episode.act(OBSERVATION)

    with pytest.raises(Throttled, match="decisionLimits"):
        await play()
    assert arms.stable.metric("learnloop_episodes_ended_total", outcome="error") == errors
    assert (loop.counters.episodes_failed, loop.counters.episodes_withdrawn) == (0, 1)
