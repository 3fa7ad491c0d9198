"""Rollouts with an experiment as a step under any fate: every write keeps its promises, and every run ends.

What must hold between two writes, what passes a step and what a promotion needs is checked by the simulated cluster.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from learnloop_api import names
from testing.simulation.experiment_step_cluster import GUESTS, StepCluster, guests_of
from testing.simulation.random_faults import Fate
from testing.simulation.rollout_cluster import MODES, digest, uri

CHANCES = st.sampled_from([0.2, 0.5, 0.9])
MODELS = st.sampled_from([1, GUESTS])
CALM = {"name": "calm", "type": "success", "maxDrop": 0.1}
ARMS = st.sampled_from(["stable", "canary", "a"])


class Chaos(Fate):
    """Anything people, pods, Prometheus, editors and the operator may do, in any order."""

    @initialize(
        chances=st.tuples(CHANCES, CHANCES, CHANCES),
        pause=st.booleans(),
        guarded=st.booleans(),
        mode=st.sampled_from(MODES),
    )
    def begin(self, chances: tuple[float, float, float], pause: bool, guarded: bool, mode: str) -> None:
        more = {"guardrails": [CALM]} if guarded else {}
        self.cluster = StepCluster(chances, (20,), pause=pause, maxEpisodes=3_000, maxSeconds=600, **more)
        self.cluster.per_second = 12
        self.cluster.by(mode).start()

    @rule(seconds=st.integers(5, 60))
    def run(self, seconds: int) -> None:
        self.cluster.run(seconds)

    @rule(seconds=st.sampled_from([-3600, 0, 10, 3600]))
    def clocks_drift_apart(self, seconds: int) -> None:
        self.cluster.skew = seconds

    @rule(model=MODELS, share=st.sampled_from([0.0, 0.8]))
    def fail(self, model: int, share: float) -> None:
        self.cluster.errors[uri(model)] = share

    @rule(model=MODELS, share=st.sampled_from([0.5, 0.85, 1.0]))
    def succeed(self, model: int, share: float) -> None:
        self.cluster.success[uri(model)] = share

    @rule(weight=st.integers(1, 30), present=st.booleans())
    def edit(self, weight: int, present: bool) -> None:
        self.cluster.experiment["arms"] = guests_of(weight) if present else []

    @rule(number=st.sampled_from([0, 1, 2]))
    def wish(self, number: int) -> None:
        self.cluster.quality.setdefault(uri(number), 0.6)
        self.cluster.spec["model"] = {"uri": uri(number), "sha256": digest(number)}

    @precondition(lambda self: self.cluster.found.get("arms"))
    @rule(verb=st.sampled_from(["abort", "approve", "reject", "pause", "resume", "restart", "retry"]), arm=ARMS)
    def say(self, verb: str, arm: str) -> None:
        found = [item["revision"] for item in self.cluster.found["arms"] if item["name"] == arm]
        if found:
            self.cluster.annotations[names.verb_annotation(verb)] = f"{found[0]} at {self.cluster.now}"

    @precondition(lambda self: len(self.cluster.deployments) > 1)
    @rule(data=st.data())
    def lose_pods(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.deployments)))
        self.cluster.broken.add(name.removeprefix("md-"))

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.prometheus, cluster.traffic, cluster.skew = True, True, 0
        cluster.spec.pop("suspend", None)
        cluster.broken.clear()
        cluster.errors.clear()
        for _ in range(60):
            cluster.run(25)
            if cluster.status["phase"] in ("Healthy", "RolledBack") and not cluster.status.get("canary"):
                break
            self.help_on()
        assert cluster.status["phase"] in ("Healthy", "RolledBack"), cluster.status["verdict"]
        assert cluster.weights() == {cluster.status["stable"]["uri"]: 100}
        assert cluster.found.get("phase", "Finished") == "Finished"

    def help_on(self) -> None:
        """What people do who want it to end: resume, and roll back what waits for them."""
        cluster, canary = self.cluster, self.cluster.status.get("canary")
        if not canary or cluster.status["phase"] != "Paused":
            return
        verb = "resume" if cluster.status.get("hand") else "reject"
        cluster.annotations[names.verb_annotation(verb)] = f"{canary['revision']} at {cluster.now}"


TestChaos = Chaos.TestCase
TestChaos.settings = settings(max_examples=4, stateful_step_count=15, suppress_health_check=list(HealthCheck))
