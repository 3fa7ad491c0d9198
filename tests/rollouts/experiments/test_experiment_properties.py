"""Experiments under any fate: every write keeps its promises, no arm wins without its proofs, every experiment ends.

What must hold between two writes, and what a promotion needs, is checked by the simulated cluster itself.
"""

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from learnloop_api import names
from testing.simulation.fast_lane_cluster import LanedExperiment
from testing.simulation.rollout_cluster import MODES, uri

MODELS = st.sampled_from([uri(1), uri(2)])
CHANCES = st.sampled_from([0.2, 0.5, 0.6, 0.95])


class Chaos(RuleBasedStateMachine):
    """Arms get better, worse, fail and lose their pods; people, Prometheus, lane and operator come and go."""

    @initialize(first=CHANCES, second=CHANCES, promote=st.booleans(), mode=st.sampled_from(MODES))
    def begin(self, first: float, second: float, promote: bool, mode: str) -> None:
        self.cluster = LanedExperiment((0.5, first, second), maxSeconds=400, onWinner="promote" if promote else "wait")
        self.cluster.per_second = 12
        self.cluster.by(mode).start()

    @rule(seconds=st.integers(1, 30))
    def run(self, seconds: int) -> None:
        self.cluster.run(seconds)

    @rule(model=MODELS, chance=CHANCES)
    def change(self, model: str, chance: float) -> None:
        self.cluster.quality[model] = chance

    @rule(model=MODELS, share=st.sampled_from([0.5, 0.85, 1.0]))
    def succeed(self, model: str, share: float) -> None:
        self.cluster.success[model] = share

    @rule(model=MODELS)
    def fail(self, model: str) -> None:
        self.cluster.fail(model)

    @rule()
    def recover(self) -> None:
        self.cluster.failing.clear()
        self.cluster.broken.clear()

    @precondition(lambda self: len(self.cluster.deployments) > 1)
    @rule(data=st.data())
    def lose_pods(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.deployments)))
        self.cluster.broken.add(name.removeprefix("md-"))

    @rule(up=st.booleans())
    def prometheus(self, up: bool) -> None:
        self.cluster.prometheus = up

    @rule(up=st.booleans())
    def lane(self, up: bool) -> None:
        self.cluster.lane_up = up

    @rule(on=st.booleans())
    def traffic(self, on: bool) -> None:
        self.cluster.traffic = on

    @rule(writes=st.integers(0, 12))
    def die(self, writes: int) -> None:
        self.cluster.reconcile(crash_after=writes)
        self.cluster.restart_operator()

    @precondition(lambda self: self.cluster.status.get("experiment"))
    @rule(verb=st.sampled_from([names.ANNOTATION_ABORT, names.ANNOTATION_PROMOTE]), arm=st.sampled_from(["a", "b"]))
    def order(self, verb: str, arm: str) -> None:
        self.cluster.annotations[verb] = f"{self.cluster.arm(arm)['revision']} at {self.cluster.now}"

    @rule(present=st.booleans())
    def edit(self, present: bool) -> None:
        if present:
            self.cluster.spec["experiment"] = self.cluster.experiment
        else:
            self.cluster.spec.pop("experiment", None)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.prometheus = cluster.traffic = cluster.lane_up = True
        cluster.broken.clear()
        for _ in range(60):
            cluster.run(15)
            experiment = cluster.status.get("experiment") or {"phase": "Finished"}
            if experiment["phase"] == "Won":
                cluster.annotations[names.ANNOTATION_PROMOTE] = cluster.arm(experiment["winner"])["revision"]
            if experiment["phase"] == "Finished" and cluster.status["phase"] in ("Healthy", "RolledBack"):
                break
        assert cluster.status["phase"] in ("Healthy", "RolledBack"), cluster.status["verdict"]
        assert cluster.weights() == {cluster.status["stable"]["uri"]: 100}


TestChaos = Chaos.TestCase
TestChaos.settings = settings(max_examples=4, stateful_step_count=12, suppress_health_check=list(HealthCheck))
