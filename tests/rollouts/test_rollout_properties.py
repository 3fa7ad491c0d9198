"""Anything may happen to a rollout, in any order: what must hold between two writes holds, and every run ends."""

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule

from learnloop_api import names
from testing.simulation.experiment_cluster import ExperimentCluster, arms_of
from testing.simulation.random_faults import Fate
from testing.simulation.rollout_cluster import BAD, BETTER, GOOD, MODES, Cluster, digest, uri
from testing.simulation.shadow_cluster import ShadowCluster


class Chaos(Fate):
    """Anything people, pods, Prometheus and the operator may do, in any order."""

    @initialize(mode=st.sampled_from(MODES))
    def begin(self, mode: str) -> None:
        self.cluster = Cluster().by(mode)
        self.models = 0

    @rule(quality=st.sampled_from([GOOD, BETTER, BAD]))
    def new_model(self, quality: float) -> None:
        self.models += 1
        self.cluster.wish(self.models, quality)

    @rule(number=st.integers(0, 5))
    def go_back(self, number: int) -> None:
        number = min(number, self.models)
        self.cluster.spec["model"] = {"uri": uri(number), "sha256": digest(number)}

    @rule(note=st.integers(0, 2))
    def change_pods(self, note: int) -> None:
        self.cluster.spec["serving"] = {"pod": {"annotations": {"note": str(note)}}}

    @rule(seconds=st.integers(1, 40))
    def run(self, seconds: int) -> None:
        self.cluster.run(seconds)

    @rule(seconds=st.integers(0, 5))
    def scrape_late(self, seconds: int) -> None:
        self.cluster.lag = seconds

    @rule(seconds=st.sampled_from([-3600, -10, 0, 10, 3600]))
    def clocks_drift_apart(self, seconds: int) -> None:
        self.cluster.skew = seconds

    @rule()
    def retry(self) -> None:
        self.cluster.annotations[names.ANNOTATION_RETRY] = str(self.cluster.now)

    @precondition(lambda self: self.cluster.status.get("canary"))
    @rule()
    def abort(self) -> None:
        self.cluster.annotations[names.ANNOTATION_ABORT] = self.cluster.status["canary"]["revision"]

    @precondition(lambda self: self.cluster.status.get("stable"))
    @rule(
        verb=st.sampled_from(["reject", "pause", "resume", "restart", "undo", "approve"]),
        arm=st.sampled_from(["stable", "canary", "previous", "blockedRevision"]),
    )
    def say(self, verb: str, arm: str) -> None:
        revision = (self.cluster.status.get(arm) or self.cluster.status["stable"])["revision"]
        self.cluster.annotations[names.verb_annotation(verb)] = f"{revision} at {self.cluster.now}"

    @precondition(lambda self: self.cluster.status.get("canary"))
    @rule()
    def break_canary(self) -> None:
        self.cluster.broken = {self.cluster.status["canary"]["revision"]}

    @precondition(lambda self: self.cluster.status.get("previous"))
    @rule(verb=st.sampled_from(["skip", "promote"]))
    def end_the_guard(self, verb: str) -> None:
        model = self.cluster.snapshot().desired.model
        self.cluster.annotations[names.verb_annotation(verb)] = f"{model.revision} at {self.cluster.now}"
        self.cluster.reconcile()
        del self.cluster.annotations[names.verb_annotation(verb)]

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            assert self.cluster.settle() in ("Healthy", "RolledBack"), self.cluster.status["verdict"]
            assert self.cluster.weight(self.cluster.status["stable"]["uri"]) == 100


TestChaos = Chaos.TestCase
TestChaos.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=15, suppress_health_check=list(HealthCheck)
)


class ShadowChaos(Chaos):
    """The same for a rollout that begins in shadow, where the canary may fail on copies, too."""

    @initialize(mode=st.sampled_from(MODES))
    def begin(self, mode: str) -> None:
        self.shadow = ShadowCluster().by(mode)
        self.cluster, self.models = self.shadow, 0

    @rule(share=st.sampled_from([0.0, 0.9]))
    def fail_in_shadow(self, share: float) -> None:
        self.shadow.failing_copies = share

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.shadow.failing_copies = 0.0
        super().teardown()


TestShadowChaos = ShadowChaos.TestCase
TestShadowChaos.settings = settings(
    max_examples=max(10, settings().max_examples // 3), stateful_step_count=15, suppress_health_check=list(HealthCheck)
)


class ExperimentChaos(Fate):
    """Anything may happen to an experiment: the cluster checks shares, stable's floor and every promotion."""

    @initialize(
        chances=st.lists(st.sampled_from([0.2, 0.5, 0.9]), min_size=3, max_size=4),
        wait=st.booleans(),
        mode=st.sampled_from(MODES),
    )
    def begin(self, chances: list[float], wait: bool, mode: str) -> None:
        weights = (20,) * (len(chances) - 1)
        self.cluster = ExperimentCluster(
            tuple(chances), weights, onWinner="wait" if wait else "promote", maxEpisodes=3_000, maxSeconds=900
        )
        self.cluster.by(mode).start()

    @rule(seconds=st.integers(5, 60))
    def run(self, seconds: int) -> None:
        self.cluster.run(seconds)

    @rule(seconds=st.sampled_from([-3600, -10, 0, 10, 3600]))
    def clocks_drift_apart(self, seconds: int) -> None:
        self.cluster.skew = seconds

    @rule(model=st.integers(1, 3), share=st.sampled_from([0.0, 0.8]))
    def fail(self, model: int, share: float) -> None:
        self.cluster.errors[uri(model)] = share

    @rule(ask=st.booleans())
    def ask_or_withdraw(self, ask: bool) -> None:
        if ask:
            self.cluster.spec["experiment"] = self.cluster.experiment
        else:
            self.cluster.spec.pop("experiment", None)

    @rule(weight=st.integers(1, 30))
    def change(self, weight: int) -> None:
        self.cluster.experiment["arms"] = arms_of(weight, weight)

    @precondition(lambda self: len(self.cluster.status.get("experiment", {}).get("arms", [])) > 1)
    @rule(annotation=st.sampled_from([names.ANNOTATION_ABORT, names.ANNOTATION_PROMOTE]), arm=st.integers(1, 3))
    def speak(self, annotation: str, arm: int) -> None:
        arms = self.cluster.status["experiment"]["arms"]
        self.cluster.annotations[annotation] = arms[min(arm, len(arms) - 1)]["revision"]

    @precondition(lambda self: len(self.cluster.status.get("experiment", {}).get("arms", [])) > 1)
    @rule()
    def break_an_arm(self) -> None:
        self.cluster.broken = {self.cluster.status["experiment"]["arms"][-1]["revision"]}

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            cluster = self.cluster
            cluster.prometheus, cluster.traffic = True, True
            cluster.spec.pop("suspend", None)
            cluster.spec.pop("experiment", None)
            cluster.broken.clear()
            cluster.errors.clear()
            for _ in range(40):
                cluster.run(60)
                if cluster.status["phase"] in ("Healthy", "RolledBack") and "experiment" not in cluster.status:
                    break
            assert cluster.status["phase"] in ("Healthy", "RolledBack"), cluster.status["verdict"]
            assert cluster.weights() == {cluster.status["stable"]["uri"]: 100}


TestExperimentChaos = ExperimentChaos.TestCase
TestExperimentChaos.settings = settings(
    max_examples=max(10, settings().max_examples // 3), stateful_step_count=15, suppress_health_check=list(HealthCheck)
)
