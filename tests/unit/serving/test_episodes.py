import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from onnx import TensorProto, helper

from learnloop_api.wire.routing import ActResponse, OpenedEpisode, ServingError
from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_serving.policy_loader import UniformPolicy
from testing.servers.policy_servers import CANARY, OTHER, STABLE, LiveServer, table

LEFT, RIGHT = [1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]


def refusal(response: object) -> tuple[int, str, str]:
    error = ServingError.model_validate_json(response.content)
    return response.status_code, error.reason, error.message


def test_an_episode_is_opened_played_and_ended(server: LiveServer) -> None:
    opened = OpenedEpisode.model_validate_json(server.post("/v1/episodes", {"agent": "cart", "task": "t"}).content)
    assert (opened.revision, opened.role, opened.url, opened.mode) == (STABLE, "stable", server.url, "service")
    act = server.post(f"/v1/episodes/{opened.episode_id}/act", {"observation": LEFT, "explore": False})
    assert ActResponse.model_validate_json(act.content) == ActResponse(
        action=0, log_prob=0, exploration=False, revision=STABLE
    )
    greedy = server.post(f"/v1/episodes/{opened.episode_id}/act", {"observation": RIGHT, "explore": False})
    assert greedy.json()["action"] == 1
    ended = {"status": "completed", "episode_return": 3.5, "length": 2}
    assert server.post(f"/v1/episodes/{opened.episode_id}/end", ended).json() == {"counted": True}


def test_sampled_actions_follow_softmax_and_say_their_log_probability(server: LiveServer) -> None:
    server.route(table((STABLE, "stable", 100)))
    counts = np.zeros(2)
    opening = server.arm.episodes.ids.read(server.opened())
    assert opening
    for _ in range(3000):
        decision = server.arm.episodes.act(opening, None, b'{"observation":[0.5,0,0,0]}')
        action = decision.action
        assert isinstance(action, int)
        assert decision.drawn
        logit = 0.5 if action == 0 else -0.5
        assert decision.log_prob == pytest.approx(logit - math.log(math.exp(0.5) + math.exp(-0.5)))
        counts[action] += 1
    assert counts[0] / 3000 == pytest.approx(math.exp(0.5) / (math.exp(0.5) + math.exp(-0.5)), abs=0.04)


@pytest.mark.parametrize(
    ("observation", "says"),
    [
        ([1.0], "takes 4"),
        ([], "observation"),
        (["a", 0, 0, 0], "observation.0"),
        ([1e300, 0, 0, 0], "float32"),
        (None, "observation"),
    ],
)
def test_an_observation_the_policy_does_not_take_is_refused(server: LiveServer, observation: object, says: str) -> None:
    status, reason, message = refusal(server.post(f"/v1/episodes/{server.opened()}/act", {"observation": observation}))
    assert (status, reason) == (400, "InvalidInput")
    assert says in message


def test_nan_broken_json_and_unknown_fields_are_refused(server: LiveServer) -> None:
    for body in (b'{"observation":[NaN,0,0,0]}', b"{", b'{"observation":[0,0,0,0],"x":1}', b""):
        assert refusal(server.post(f"/v1/episodes/{server.opened()}/act", body))[:2] == (400, "InvalidInput")


def test_a_body_beyond_its_bound_is_refused(server: LiveServer) -> None:
    assert refusal(server.post("/v1/episodes", b" " * 20_000))[:2] == (413, "TooLarge")


def test_an_episode_id_that_was_never_given_out_is_refused(server: LiveServer) -> None:
    status, reason, message = refusal(server.post("/v1/episodes/a%20b/act", {"observation": LEFT}))
    assert (status, reason) == (404, "UnknownEpisode")
    assert "'a b'" in message


def test_a_withdrawn_arm_refuses_to_act_but_counts_the_end(server: LiveServer) -> None:
    server.route(table((OTHER, "stable", 100)))
    episode = server.opened()
    assert refusal(server.post(f"/v1/episodes/{episode}/act", {"observation": LEFT}))[:2] == (410, "ArmWithdrawn")
    before = server.metric("learnloop_episodes_ended_total", outcome="withdrawn")
    ended = {"status": "withdrawn", "episode_return": 1, "length": 1}
    assert server.post(f"/v1/episodes/{episode}/end", ended, **{"x-learnloop-arm": STABLE}).status_code == 200
    assert server.metric("learnloop_episodes_ended_total", outcome="withdrawn") == before + 1


def test_a_request_for_another_arm_is_misdirected_while_that_arm_is_there_and_gone_when_it_is_withdrawn(server):
    server.route(table((STABLE, "stable", 90), (CANARY, "canary", 10)))
    body, at = {"observation": LEFT}, f"/v1/episodes/{server.opened(CANARY)}"
    named = {"x-learnloop-arm": CANARY}
    ended = {"status": "error", "episode_return": 0, "length": 0}
    for header in (named, {}):
        assert refusal(server.post(f"{at}/act", body, **header))[:2] == (421, "UnknownEpisode")
        assert refusal(server.post(f"{at}/end", ended, **header))[:2] == (421, "UnknownEpisode")
    server.route(table((STABLE, "stable", 100)))
    for header in (named, {}):
        assert refusal(server.post(f"{at}/act", body, **header))[:2] == (410, "ArmWithdrawn")
        assert refusal(server.post(f"{at}/end", ended, **header))[:2] == (410, "ArmWithdrawn")


def test_outcomes_are_counted_once_per_episode(server: LiveServer) -> None:
    def count(outcome: str) -> float:
        return server.metric("learnloop_episodes_ended_total", outcome=outcome)

    before = {outcome: count(outcome) for outcome in ("success", "failure", "error")}
    gain = server.metric("learnloop_episode_return_gain_total")
    loss = server.metric("learnloop_episode_return_loss_total")
    for status, success, value in (
        ("completed", None, 5.0),
        ("completed", False, -2.0),
        ("error", None, 0.0),
        ("completed", True, 1.0),
    ):
        name = server.opened()
        ending = {"status": status, "episode_return": value, "length": 1, "success": success}
        assert server.post(f"/v1/episodes/{name}/end", ending).json() == {"counted": True}
        assert server.post(f"/v1/episodes/{name}/end", ending).json() == {"counted": False}
    assert {name: count(name) - before[name] for name in before} == {"success": 2, "failure": 1, "error": 1}
    assert server.metric("learnloop_episode_return_gain_total") - gain == 6.0
    assert server.metric("learnloop_episode_return_loss_total") - loss == 2.0


def test_service_mode_draws_the_arm_and_names_its_service(server: LiveServer) -> None:
    server.route(table((STABLE, "stable", 0, "http://s"), (CANARY, "canary", 100, "http://c")))
    opened = server.post("/v1/episodes", {}).json()
    assert (opened["revision"], opened["role"], opened["url"]) == (CANARY, "canary", "http://c")
    assert server.metric("learnloop_episodes_opened_total", revision=CANARY) >= 1
    stable = server.post("/v1/episodes", {"stable_only": True}).json()
    assert (stable["revision"], stable["url"]) == (STABLE, "http://s")


def test_a_withdrawn_server_still_gives_new_episodes_to_the_arms_that_are_left(server: LiveServer) -> None:
    server.route(table((OTHER, "stable", 100, "http://other")))
    assert server.post("/v1/episodes", {}).json()["revision"] == OTHER


def test_gateway_mode_keeps_the_arm_the_gateway_chose(start: Callable[..., LiveServer]) -> None:
    server = start(revision=CANARY, mode="gateway")
    server.route(table((STABLE, "stable", 90), (CANARY, "canary", 10), mode="gateway"))
    opened = server.post("/v1/episodes", {}).json()
    assert (opened["revision"], opened["mode"], opened["url"]) == (CANARY, "gateway", "")
    assert server.post("/v1/episodes", {"stable_only": True}).json()["revision"] == STABLE
    late = "2020-01-01T00:00:00Z"
    server.route(table((STABLE, "stable", 90), (CANARY, "canary", 10), mode="gateway", expires_at=late))
    assert server.post("/v1/episodes", {}).json()["revision"] == STABLE
    server.route(table((STABLE, "stable", 100), mode="gateway"))
    assert refusal(server.post("/v1/episodes", {}))[:2] == (410, "ArmWithdrawn")


def test_before_policy_and_table_the_server_is_alive_but_not_ready(start: Callable[..., LiveServer]) -> None:
    server = start(policy=None)
    assert server.get("/healthz").status_code == 200
    assert server.get("/readyz").status_code == 503
    assert refusal(server.post("/v1/episodes", {}))[:2] == (503, "NotReady")
    server.arm.install(UniformPolicy(2, 4), 0.0)
    assert server.get("/readyz").status_code == 503
    server.route(table((STABLE, "stable", 100)))
    assert server.get("/readyz").status_code == 200


def test_a_slow_policy_runs_beside_the_event_loop(start: Callable[..., LiveServer]) -> None:
    server = start()
    server.arm.install(UniformPolicy(2, 4), 1.0)
    server.route(table((STABLE, "stable", 100)))
    assert server.arm.offload
    assert server.post(f"/v1/episodes/{server.opened()}/act", {"observation": LEFT}).status_code == 200


def test_a_policy_that_breaks_is_the_arms_fault(start: Callable[..., LiveServer]) -> None:
    class Broken(UniformPolicy):
        def run(self, observation: object) -> object:
            raise ZeroDivisionError

    server = start(policy=Broken(2, 4))
    server.route(table((STABLE, "stable", 100)))
    assert refusal(server.post(f"/v1/episodes/{server.opened()}/act", {"observation": LEFT}))[:2] == (
        500,
        "PolicyError",
    )
    assert server.metric("learnloop_policy_request_errors_total", verb="act") == 1


def test_what_a_caller_sends_wrong_says_nothing_of_the_arm(start: Callable[..., LiveServer]) -> None:
    server = start(policy=UniformPolicy(2, 4))
    server.route(table((STABLE, "stable", 100)))
    at = f"/v1/episodes/{server.arm.episodes.ids.make(STABLE)}"
    infer = f"/v2/models/cart/versions/{STABLE}/infer"
    for body in ({"observation": [1.0]}, {"observation": [1e300, 0, 0, 0]}, b"{"):
        assert server.post(f"{at}/act", body).status_code == 400
    assert server.post(f"{at}/end", b"{").status_code == 400
    assert server.post("/v1/episodes", b"[]").status_code == 400
    assert server.post(infer, b"{").status_code == 400
    for verb, sent in (("act", 3), ("end", 1), ("open", 1), ("infer", 1)):
        assert server.metric("learnloop_policy_request_errors_total", verb=verb) == 0
        assert server.metric("learnloop_policy_request_duration_seconds_count", verb=verb) == 0
        assert server.metric("learnloop_requests_uncounted_total", verb=verb, reason="invalid") == sent


def test_an_episode_fails_once_however_often_its_caller_repeats_what_the_policy_cannot_stand(start):
    class Brittle(UniformPolicy):
        def run(self, observation: np.ndarray) -> object:
            if observation.max() > 1:
                raise ZeroDivisionError
            return super().run(observation)

    server = start(policy=Brittle(2, 4))
    server.route(table((STABLE, "stable", 100)))
    for episode in (server.opened(), server.opened()):
        assert server.post(f"/v1/episodes/{episode}/act", {"observation": LEFT}).status_code == 200
        for _ in range(6):
            assert server.post(f"/v1/episodes/{episode}/act", {"observation": [7.0] * 4}).status_code == 500
    assert server.metric("learnloop_policy_request_errors_total", verb="act") == 2
    assert server.metric("learnloop_policy_request_duration_seconds_count", verb="act") == 4
    assert server.metric("learnloop_requests_uncounted_total", verb="act", reason="again") == 10


@pytest.mark.parametrize("value", ["1.7e308", "-1.7e308", "1e999", "NaN", "1.1e12"])
def test_a_return_beyond_its_bound_is_refused_and_sums_stay_numbers(server: LiveServer, value: str) -> None:
    end = f"/v1/episodes/{server.opened()}/end"
    body = b'{"status":"completed","length":1,"episode_return":%s}' % value.encode()
    assert refusal(server.post(end, body))[:2] == (400, "InvalidInput")
    for most in (1e12, 1e12):
        fine = {"status": "completed", "length": 1, "episode_return": most}
        assert server.post(f"/v1/episodes/{server.opened()}/end", fine).json() == {"counted": True}
    gain = server.metric("learnloop_episode_return_gain_total")
    assert server.post(end, {"status": "completed", "length": 1, "episode_return": 0.5}).json() == {"counted": True}
    assert math.isfinite(gain)
    assert server.metric("learnloop_episode_return_gain_total") - gain == 0.5, "a small return is still seen"


def test_series_of_the_own_revision_exist_from_the_start(start: Callable[..., LiveServer]) -> None:
    text = start().get("/metrics").text
    own = f'model_deployment="cart",revision="{STABLE}"'
    for line in (
        f"learnloop_episodes_opened_total{{{own}}} 0.0",
        f'learnloop_episodes_ended_total{{model_deployment="cart",outcome="failure",revision="{STABLE}"}} 0.0',
        f"learnloop_episode_return_loss_total{{{own}}} 0.0",
        f'learnloop_policy_request_errors_total{{{own},verb="act"}} 0.0',
        f'learnloop_policy_request_duration_seconds_count{{{own},verb="act"}} 0.0',
        f"learnloop_routing_generation{{{own}}} -1.0",
    ):
        assert line in text


@pytest.mark.parametrize(("seconds", "revision"), [(-1, STABLE), (60, CANARY)])
def test_a_table_past_its_expiry_sends_every_new_episode_to_stable(server, seconds, revision):
    expires = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    server.route(table((STABLE, "stable", 0), (CANARY, "canary", 100), expires_at=expires))
    server.arm.episodes.reach.answered(server.routing.table.arms[1])
    assert {server.post("/v1/episodes", {}).json()["revision"] for _ in range(20)} == {revision}


def test_what_a_policy_remembers_travels_with_its_episode(start: Callable[..., LiveServer]) -> None:
    """Its logits are the sum of all that the episode has shown: any server of the arm can go on with it."""
    wide = ("observation", "memory", "logits", "next_memory")
    observation, *more = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in wide]
    nodes = [
        helper.make_node("Add", ["observation", "memory"], ["logits"]),
        helper.make_node("Identity", ["logits"], ["next_memory"]),
        helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0),
    ]
    action = helper.make_tensor_value_info("action", TensorProto.INT64, ["n"])
    graph = helper.make_graph(nodes, "sum", [observation, more[0]], [action, *more[1:]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    server = start(policy=OnnxPolicy(model.SerializeToString()))
    server.route(table((STABLE, "stable", 100, server.url)))
    act, turned = f"/v1/episodes/{server.opened()}/act", {"observation": [0.0, 0.5], "explore": False}
    first = server.post(act, {"observation": [1.0, 0.0], "explore": False}).json()
    assert server.post(act, turned | {"memory": first["memory"]}).json()["action"] == 0
    assert server.post(act, turned).json()["action"] == 1
    for memory in ("AAAA", "!", "AADAfwAAwH8="):
        assert refusal(server.post(act, turned | {"memory": memory}))[2].startswith("memory: ")
    assert "use /v1/episodes" in server.post("/v2/models/cart/infer", {}).json()["error"]
