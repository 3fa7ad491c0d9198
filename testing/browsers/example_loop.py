"""A loop as the console sees it: an agent, its runs, a canary under way, and what the data plane has of them."""

import math
import random
from datetime import datetime, timedelta
from typing import Any

Object = dict[str, Any]
PROOF = {"episodes": 100, "mean": 487.2, "iqm": 488.0, "ciLow": 481.0, "ciHigh": 492.1}
BEFORE = {"episodes": 100, "mean": 402.9, "iqm": 403.0, "ciLow": 395.0, "ciHigh": 410.7}
MEANS = {"b41d07ee": 487.0, "0bad0bad": 9.5, "3f9a2c81": 403.0}
EPISODES = 400


class ExampleLoop:
    """All moments are counted back from `now`."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def _ago(self, seconds: float) -> str:
        return (self._now - timedelta(seconds=seconds)).isoformat()

    def objects(self) -> list[tuple[str, Object]]:
        """Plural and body of each."""
        return [
            ("learningagents", self.agent()),
            ("modeldeployments", self.rollout()),
            *(("trainingjobs", self.run(number)) for number in range(1, 6)),
        ]

    def changes(self, state: str) -> list[tuple[str, Object]]:
        """The differences from `objects`: at `rest` no canary plays, after a `rollback` the canary was worse."""
        over: Object = {
            "canary": None,
            "evidence": None,
            "weight": None,
            "step": None,
            "stepText": None,
            "stepStartedAt": None,
        }
        if state == "rest":
            sentence, model = "b41d07ee serves every episode", "walker-4 serves"
            over |= {"phase": "Healthy", "stable": _arm("b41d07ee", 487.2, 1024, 0.97), "verdict": sentence}
        else:
            why = "RolledBack at 25 %: success of the canary 0.71 vs 0.93 of stable; P(worse) > 0.9999, 0.995 needed"
            sentence = f"{why}; 3f9a2c81 serves until a new model, or `kubectl learnloop retry walker`"
            block = {"revision": "b41d07ee", "uri": "u", "reason": "CheckFailed", "message": why, "at": self._ago(2)}
            over |= {"phase": "RolledBack", "verdict": sentence, "blockedRevision": block, "blockedRevisions": [block]}
            model = "walker-4 was rolled back"
        agent = self.agent(f"{model}; walker-5 is running (Training)", None)
        agent["status"]["servingRevision"] = "b41d07ee" if state == "rest" else "3f9a2c81"
        return [("modeldeployments", self.rollout(**over)), ("learningagents", agent)]

    def agent(
        self, why: str = "walker-4 is the model; walker-5 is running (Training)", weight: str | None = "25%"
    ) -> Object:
        status = {
            "phase": "Training",
            "recentReturn": 452.1,
            "baselineReturn": 22.4,
            "successRate": 0.95,
            "weight": weight,
            "trainings": 4,
            "trajectories": 4210,
            "rewarded": 4208,
            "rewardedSinceTraining": 312,
            "lastTraining": {"name": "walker-4", "phase": "Validated", "trigger": "episodes", "at": self._ago(1500)},
            "servingRevision": "3f9a2c81",
            "conditions": [{"type": "Ready", "status": "True", "message": why}],
        }
        return _object("walker", {"rewardPolicyRef": {"name": "walker"}, "training": {"template": {}}}, status)

    def rollout(self, name: str = "walker", **more: Any) -> Object:
        tests = [
            _test("success", "not more than 0.05 below stable", "undecided", 0.0021, 0.81, [212, 205.6, 812, 755]),
            _test("errors", "at most 0.05", "fine", 0.0, 0.9987, [212, 1, 812, 3]),
        ]
        blocked = {
            "revision": "0bad0bad",
            "uri": "u",
            "reason": "ReturnTooLow",
            "message": "return 9.5 of 40 episodes against 402.9: below 0.8 of stable",
            "at": self._ago(2700),
        }
        status = {
            "phase": "Progressing",
            "weight": 25,
            "stepText": "2/4",
            "stepStartedAt": self._ago(312),
            "verdict": "holding at 25 %: success of the canary 0.97 against 0.93; about 61 more episodes are needed",
            "stable": _arm("3f9a2c81", 402.9, 812, 0.93),
            "canary": _arm("b41d07ee", 487.2, 212, 0.97),
            "evidence": [tests[0] | {"neededEpisodes": 61, "estimatedAt": self._ago(-400)}, tests[1]],
            "blockedRevision": blocked,
            "blockedRevisions": [blocked],
            "decisions": [self._decision("pause", 500, "held at 10 %"), self._decision("resume", 400, "goes on")],
        }
        shown = {key: value for key, value in (status | more).items() if value is not None}
        return _object(name, {"model": {"learningAgentRef": {"name": "walker"}}}, shown)

    def run(self, number: int) -> Object:
        running, refused = number == 5, number == 2
        returns = "2 ranks train" if running else "487.2 [481.0, 492.1] held out, against 402.9 [395.0, 410.7]"
        status: Object = {
            "phase": "Training" if running else "Failed" if refused else "Validated",
            "attempts": 1,
            "startedAt": self._ago(9000 - 1500 * number),
            "step": 100_000 if running else 400_000,
            "totalSteps": 400_000,
            "progress": "25%" if running else "100%",
            "recentReturn": PROOF,
            "conditions": [{"type": "Ready", "status": str(not running), "message": returns}],
            "lineage": {"learningAgent": "walker", "rewardPolicy": "walker", "rewardPolicyRevision": "r3"},
        }
        if not running:
            gate = {"name": "minImprovement", "passed": not refused, "message": "84.3 [76.1, 92.0] more; wanted 0"}
            status |= {"finishedAt": self._ago(8000 - 1500 * number), "evaluation": PROOF, "baseline": BEFORE}
            status |= {"gates": [gate], "artifact": {"uri": "learnloop://demo/x", "sha256": "ab" * 32}}
        return _object(f"walker-{number}", {"algorithm": "ppo"}, status)

    def records(self) -> dict[str, Any]:
        """The data plane's answers, by path."""
        rewards = [self._reward(number) for number in range(EPISODES)]
        credits = {"credits": [round(0.02 * math.sin(k / 4), 4) for k in range(40)], "reward": 1.0}
        episodes = [_episode(reward["trajectory_id"], reward["raw_reward"]) for reward in rewards[:20]]
        figures = {"loss": 0.31, "entropy": 0.62, "kl_divergence": 0.008}
        memories = [self._memory(number) for number in range(6)]
        deployed = [self._event("rolled_back", 2700), self._event("deployed", 3500)]
        week = {"week": "2026-01-26", "episodes": 4210, "success_rate": 0.95, "raw_reward": 402.1, "trainings": 4}
        parity = {"action_agreement": 1.0, "observations": 4096, "max_abs_difference": 2.4e-7}
        proof: Object = {"difference": {"value": 84.3, "low": 76.1, "high": 92.0}, "parity": parity}
        beat = {"step": 100_000, "curve": _curve(5, 100_000)}
        points = [{"step": step, "mean": 22.4 + step / 900} for step in range(0, 400_001, 40_000)]
        proof |= {"while_training": {"episodes": 20, "points": points, "best_step": 400_000, "exported": "best"}}
        return {
            "/api/v1/rewards/history": {"rewards": rewards, "next": None},
            "/api/v1/rewards/credits/t-0003": credits,
            "/api/v1/experience/trajectories": {"trajectories": episodes, "next": None},
            "/api/v1/agents/walker/progress": {"weeks": [week]},
            "/api/v1/models/walker/deployed": {"deployed": deployed},
            "/api/v1/training/runs/walker-5": {"heartbeat": beat | {"figures": figures}, "proof": None},
            "/api/v1/training/runs/walker-4": {"heartbeat": {"curve": _curve(4, 400_000)}, "proof": proof},
            "/api/v1/training/runs/walker-3": {"heartbeat": {"curve": _curve(3, 400_000)}, "proof": None},
            "/api/v1/memory/entries": {"memories": memories, "next": None},
            "/api/v1/memory/retrieve": {
                "memories": [memory | {"score": 8.5, "why": "words"} for memory in memories[:3]]
            },
            "/api/v1/audit/records": {"records": [self._record(1), self._record(2)], "next": None},
        }

    def _decision(self, verb: str, ago: float, message: str) -> Object:
        decision = {"verb": verb, "revision": "b41d07ee", "by": "anna@example.org", "verified": True, "value": verb}
        return decision | {"at": self._ago(ago), "outcome": "obeyed", "message": message}

    def _reward(self, number: int) -> Object:
        drawn, ago = random.Random(number), 10.0 * number
        canary, bad = ago < 600 and drawn.random() < 0.25, 2700 < ago < 3100 and drawn.random() < 0.2
        revision = "b41d07ee" if canary else "0bad0bad" if bad else "3f9a2c81" if ago < 3500 else "1e7acc00"
        raw = MEANS.get(revision, 150.0) + drawn.gauss(0.0, 18.0)
        return {
            "trajectory_id": f"t-{number:04d}",
            "components": {"distance": 0.8 * raw, "energy": -0.05 * raw - 4 * drawn.random(), "upright": 0.25 * raw},
            "weights": {"distance": 1.0, "energy": 1.0, "upright": 1.0},
            "raw_reward": raw,
            "reward": (raw - 400.0) / 100.0,
            "confidence": 1.0,
            "violated": ["no-fall"] if bad else [],
            "computed_at": self._ago(ago),
            "metadata": {"policy_revision": revision},
        }

    def _event(self, event: str, ago: float) -> Object:
        revision = "3f9a2c81" if event == "deployed" else "0bad0bad"
        verdict = "promoted: 403 against 150" if event == "deployed" else "return 9.5 of 40 episodes against 402.9"
        return {"event": event, "revision": revision, "reason": "", "verdict": verdict, "deployed_at": self._ago(ago)}

    def _memory(self, number: int) -> Object:
        texts = ("Stairs: shorten the step.", "Fell on wet stone; slow down.", "The left hip saturates above 0.8.")
        return {
            "id": f"m{number}",
            "memory_type": ("semantic", "episodic", "procedural")[number % 3],
            "content": {"text": texts[number % 3]},
            "importance": 0.3,
            "origin": "trajectory/t-0003",
            "pinned": number == 0,
            "created_at": self._ago(100.0 * number),
            "access_count": 12 - number,
            "helped": 3.2,
            "hurt": 0.4,
        }

    def _record(self, number: int) -> Object:
        operator = "system:serviceaccount:learnloop-system:learnloop-operator"
        what = {"seq": number, "at": self._ago(400), "actor": operator}
        detail = {"verb": ("pause", "resume")[number % 2], "by": "anna@example.org", "revision": "b41d07ee"}
        what |= {"action": "rollout.decision", "subject": "model-deployment/walker"}
        return what | {"outcome": "obeyed", "detail": detail}


def _object(name: str, spec: Object, status: Object) -> Object:
    return {"metadata": {"namespace": "demo", "name": name}, "spec": spec, "status": status}


def _arm(revision: str, mean: float, episodes: int, success: float) -> Object:
    pods = {"revision": revision, "uri": f"learnloop://demo/{revision}", "replicas": 2, "readyReplicas": 2}
    return pods | {"meanReturn": mean, "episodes": episodes, "successRate": success}


def _curve(number: int, steps: int) -> list[Object]:
    """Run `number` learns faster than the one before."""
    drawn, points = random.Random(number), []
    for step in range(8_000, steps + 1, 8_000):
        mean = 487.0 - 460.0 * math.exp(-step / (240_000 - 40_000 * number)) + drawn.gauss(0.0, 6.0)
        points.append({"step": step, "mean": mean, "low": mean - 18.0, "high": mean + 18.0})
    return points


def _test(name: str, claim: str, verdict: str, worse: float, fine: float, judged: list[float]) -> Object:
    result = {"name": name, "claim": claim, "verdict": verdict, "judged": judged}
    return result | {"chanceWorse": worse, "chanceFine": fine}


def _episode(trajectory: str, returned: float) -> Object:
    steps = [
        {
            "observation": [round(math.sin(k / 5), 3), 0.1, 0.2, -0.3],
            "action": k % 2,
            "log_prob": -0.3,
            "reward": -3.0 if k == 17 else 1.0,
            "terminated": k == 39,
            "exploration": k % 9 == 0,
        }
        for k in range(40)
    ]
    fields = {"trajectory_id": trajectory, "policy_revision": "3f9a2c81", "status": "completed", "success": True}
    return fields | {"episode_return": returned, "values": {"tool_errors": 0}, "steps": steps}
