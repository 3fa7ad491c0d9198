"""An experiment with live traffic: three models side by side, and the best one takes over as it is."""

from testing.real_cluster.cluster_actions import Json, Rig, learnloop
from testing.real_cluster.playing_agents import Habits, players


def _deployment() -> Json:
    arms = [
        {"name": name, "uri": f"uniform://discrete/{actions}?observations=4", "weight": 30}
        for name, actions in (("worse", 3), ("better", 4))
    ]
    return learnloop(
        "ModelDeployment",
        "policy",
        {
            "model": {"uri": "uniform://discrete/2?observations=4"},
            "rollout": {"keepForSeconds": 0},
            "analysis": {"intervalSeconds": 1, "metrics": [{"name": "errors", "type": "errors", "max": 0.05}]},
            "experiment": {"arms": arms, "metric": {"type": "success"}, "minEpisodes": 20, "onWinner": "promote"},
        },
    )


def test_the_better_of_two_challengers_is_proven_and_promoted_and_the_others_go(rig: Rig, namespace: str) -> None:
    rig.apply(namespace, _deployment())
    running = rig.until("the split", lambda: _experiment(rig, namespace, "Running"), 120)
    stable, worse, better = (arm["revision"] for arm in running["arms"])
    rig.until("its weights", lambda: rig.canary_weight(namespace, "policy") == 60, 30)
    pod, remaining = (
        rig.api.pods(namespace, f"learnloop.dev/revision={revision}")[0]["metadata"] for revision in (stable, better)
    )
    habits = Habits(chances={stable: 0.4, worse: 0.2, better: 0.95})
    with players(rig, namespace, pod["name"], habits) as played:
        over = rig.until("a winner", lambda: _experiment(rig, namespace, "Finished"), 90)
    assert set(played.opened) == {stable, worse, better}
    assert over["winner"] == "better"
    assert over["message"].startswith(f"promoted better ({better}): success rate: better ")
    status = rig.phase(namespace, "modeldeployments", "policy", "Healthy", seconds=60)
    assert status["stable"]["revision"] == better
    rig.until("the other arms' end", lambda: len(_pods(rig, namespace)) == 1, 60)
    assert _pods(rig, namespace) == {remaining["uid"]}, "the winner's pod was replaced"


def _experiment(rig: Rig, namespace: str, phase: str) -> Json | None:
    experiment: Json = rig.status(namespace, "modeldeployments", "policy").get("experiment") or {}
    return experiment if experiment.get("phase") == phase else None


def _pods(rig: Rig, namespace: str) -> set[str]:
    return {item["metadata"]["uid"] for item in rig.api.pods(namespace, "learnloop.dev/model-deployment=policy")}
