"""Deployments: reports of their gates, models that serve or were rolled back, outcomes, and progress by week."""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from learnloop_api.kinds.rollouts.rollout_steps import Verb
from learnloop_api.wire import training, trajectory
from learnloop_api.wire.base import MOST, Name, Sentence, Sha256, Timestamp, WireModel

Percent = Annotated[int, Field(ge=0, le=100)]

REPORT_FILE = "/report/report.json"
MOST_REPORT_BYTES = 1_048_576
MOST_ROWS = 20_000
MOST_GROUPS = 16


def gates_account(model_deployment: str) -> str:
    """Name of the ServiceAccount that the suites of a ModelDeployment run as."""
    return f"{model_deployment}-gates"


Count = Annotated[int, Field(ge=0, le=MOST)]
Category = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9_]*[a-z0-9])?$")]


class DetectorReport(WireModel):
    """Detector that separated failures from good answers, with its counts on its own labelled set."""

    name: str = Field(min_length=1, max_length=253)
    sha256: Sha256 = Field(description="of its rules, its weights, or of a judge's model name and prompt")
    positives: Count = Field(description="labelled failures")
    negatives: Count = Field(description="labelled good answers")
    true_positives: Count = Field(description="labelled failures that it flags")
    false_positives: Count = Field(description="labelled good answers that it flags")

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.true_positives > self.positives or self.false_positives > self.negatives:
            raise ValueError("more were flagged than were labelled: count each labelled answer once")
        return self

    @property
    def precision(self) -> float:
        """Share of true failures among what it flags; 0 where it flags nothing."""
        flagged = self.true_positives + self.false_positives
        return self.true_positives / flagged if flagged else 0.0

    @property
    def recall(self) -> float:
        """Share of the labelled failures that it flags; 0 without any."""
        return self.true_positives / self.positives if self.positives else 0.0


class GroupRows(WireModel):
    """The same prompts with one group's name after the other: did each answer fail?"""

    groups: list[Category] = Field(min_length=2, max_length=MOST_GROUPS)
    rows: list[list[Literal[0, 1]]] = Field(max_length=MOST_ROWS, description="one row a prompt, one column a group")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(set(self.groups)) < len(self.groups):
            raise ValueError("groups: a name stands there twice; name each group once")
        if any(len(row) != len(self.groups) for row in self.rows):
            raise ValueError("rows: a row has not one column for each group; leave out prompts that were not all asked")
        return self


class GateReport(WireModel):
    """`report.json` of one suite."""

    suite: Name
    revision: str = Field(min_length=8, max_length=64, description="of the candidate that was asked")
    n: Count = Field(description="answers that were judged")
    failures: dict[Category, Count] = Field(
        default_factory=dict, max_length=64, description="by category; an answer counts once"
    )
    errors: Count = Field(default=0, description="requests that got no answer: they prove nothing, and stop the gate")
    detector: DetectorReport
    pairs: Annotated[list[tuple[float, float]], Field(max_length=MOST_ROWS)] | None = Field(
        default=None, description="scores from 0 to 1 of the candidate and of what serves, on the same task each"
    )
    by_group: GroupRows | None = Field(default=None, description="where groups are compared")
    examples: list[Annotated[str, Field(max_length=1000)]] = Field(
        default_factory=list, max_length=20, description="of failures, for people; redacted"
    )
    seconds: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if sum(self.failures.values()) > self.n:
            raise ValueError("failures: more than n; an answer counts once, in the category that describes it best")
        if self.pairs is not None and any(not 0.0 <= score <= 1.0 for pair in self.pairs for score in pair):
            raise ValueError("pairs: a score lies outside 0 to 1; scale scores, and turn them so that more is better")
        return self

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class StoredReport(WireModel):
    """A report as the data plane keeps it: written once for each Job."""

    job: Name
    sha256: Sha256 = Field(description="of its bytes, an artifact of the namespace")
    received_at: Timestamp
    report: GateReport | None = Field(default=None, description="null: its bytes are not a valid report")
    problem: str = Field(default="", max_length=1024, description="why they are none")


class GateReports(WireModel):
    """GET /api/v1/models/{deployment}/gates: the reports of one ModelDeployment's Jobs."""

    reports: list[StoredReport] = Field(default_factory=list, max_length=64)


class SuiteVerdict(WireModel):
    """Operator's verdict on one suite."""

    suite: Name
    verdict: Literal["passed", "failed"]
    samples: int | None = Field(default=None, ge=0, le=MOST)
    failures: int | None = Field(default=None, ge=0, le=MOST)
    bound: float | None = Field(default=None, description="upper confidence bound")
    limit: float | None = Field(default=None, description="the highest bound that passes")
    report_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    message: Sentence = Field(default="", max_length=1024)


class JudgedGates(WireModel):
    """PUT /api/v1/models/{deployment}/gates/{revision}/verdict: how a candidate's gates ended. Operator only."""

    model_deployment: Name
    revision: str = Field(min_length=8, max_length=64)
    started_at: Timestamp = Field(description="when its suites began; a retried candidate starts them again")
    passed: bool
    verdicts: list[SuiteVerdict] = Field(max_length=12)
    approved_by: str | None = Field(default=None, max_length=1024)
    message: Sentence = Field(default="", max_length=1024)


class ScheduledStep(WireModel):
    """One step of the way to everybody."""

    weight: Percent = Field(description="percent of new episodes")
    min_seconds: int = Field(ge=0, le=MOST)
    min_episodes: int = Field(ge=0, le=MOST)
    waits_for_approval: bool = False


class Validation(WireModel):
    """The proof behind a model: what its training run showed on held-out episodes."""

    job: Name = Field(description="the TrainingJob")
    evaluation: training.ReturnEstimate
    baseline: training.ReturnEstimate
    difference: training.Interval | None = None


class ModelDeployed(WireModel):
    """Model that now answers callers outside a canary, or the one that no longer does, and the reason."""

    event: Literal["deployed", "rolled_back"] = Field(
        default="deployed", description="rolled_back: `revision` is the model that users no longer get"
    )
    model_deployment: Name
    revision: str = Field(min_length=1, max_length=64, description="of the model this is about, e.g. 3f9a2c81")
    uri: str = Field(min_length=1, max_length=2048, description="where its artifact lies")
    sha256: Sha256 | None = Field(default=None, description="null: not checked")
    previous_revision: str | None = Field(
        default=None,
        max_length=64,
        description="deployed: the model that stays warm, or null; rolled_back: the model that serves now",
    )
    routing_mode: Literal["service", "gateway"] = Field(default="service", description="who splits the traffic")
    platform: Literal["learnloop-policy-server", "vllm", "llama.cpp", "openai"] = Field(
        default="learnloop-policy-server",
        description="what serves it: Open Inference Protocol v2 on onnxruntime, or the server of a language model "
        "behind the gateway",
    )
    canary_weights: list[Percent] = Field(
        default_factory=list, max_length=32, description="the schedule it came by: percent of new episodes"
    )
    schedule: list[ScheduledStep] = Field(
        default_factory=list, max_length=32, description="the same with how long each step lasts at least"
    )
    validation: Validation | None = Field(
        default=None, description="filled in by the data plane, where it has the proof of this artifact"
    )
    reason: Sentence = Field(default="", max_length=1024, description="rolled_back: one CamelCase word why")
    verdict: Sentence = Field(
        default="", max_length=1024, description="the rollout's sentence about it, with its evidence"
    )
    gates: list[SuiteVerdict] = Field(
        default_factory=list, max_length=12, description="what stood between it and its first episode; empty: nothing"
    )
    approved_by: str | None = Field(
        default=None, max_length=1024, description="the person who let it begin; null: no approval was required"
    )
    deployed_at: Timestamp = Field(description="when it became the stable one, or was rolled back")

    @property
    def outcome(self) -> Literal["promotions", "rollbacks"] | None:
        """The count that it belongs to in reports. None: a first model, promoted over none."""
        if self.event == "rolled_back":
            return "rollbacks"
        return "promotions" if self.previous_revision else None


class ServedModel(WireModel):
    """One line of GET /api/v1/models: what serves at a ModelDeployment, and what was rolled back there last."""

    model_deployment: Name
    serving: ModelDeployed | None = Field(description="null: nothing has served here yet")
    rolled_back: ModelDeployed | None = Field(default=None, description="the newest model that was rolled back")


class AwaitedApproval(WireModel):
    """PUT /api/v1/models/{deployment}/awaited-approval: a rollout waits for a person. Operator only."""

    model_deployment: Name
    revision: str = Field(min_length=1, max_length=64, description="of the model that waits")
    step: int | None = Field(default=None, ge=1, le=1000, description="from 1; null: at its gates")
    since: Timestamp = Field(description="when everything but the approval was there")
    until: Timestamp | None = Field(default=None, description="what is said in `otherwise` happens then; null: never")
    otherwise: Literal["hold", "roll_back"] = Field(default="hold", description="what happens without an answer")
    message: Sentence = Field(default="", max_length=1024, description="the rollout's sentence")


class RolloutDecision(WireModel):
    """PUT /api/v1/models/{deployment}/decisions/{decision}: one order of a person and its answer. Operator only."""

    model_deployment: Name
    verb: Verb
    revision: str | None = Field(default=None, max_length=64)
    step: int | None = Field(default=None, ge=1, le=1000)
    by: str | None = Field(default=None, max_length=256, description="the person who decided; null if unknown")
    verified: bool = Field(description="the API server checked that name; else it is a claim")
    at: Timestamp = Field(description="when the operator answered")
    outcome: Literal["obeyed", "ignored", "refused"]
    message: Sentence = Field(max_length=1024, description="what was done, or why not")


MOST_REVISIONS = 16
LONGEST_SECONDS = 31_536_000


class RevisionOutcomes(WireModel, extra="ignore"):
    """Episodes that one revision played and that arrived in the asked time. Withdrawn ones count for nothing."""

    revision: str = Field(max_length=trajectory.MAX_REVISION)
    episodes: int = Field(ge=0, description="that arrived")
    rewarded: int = Field(ge=0, description="of these, those that have a reward")
    reward_sum: float = Field(
        description="of their raw rewards; one that broke a safety constraint counts with no more than its reward"
    )
    rated: int = Field(ge=0, description="of these, those that at least one person rated")
    feedback_sum: float = Field(description="of the mean opinion about each rated episode, -1 to 1")


class DeploymentOutcomes(WireModel, extra="ignore"):
    """Each asked revision, also those that nothing arrived of."""

    seconds: int = Field(ge=1, le=LONGEST_SECONDS, description="counted are episodes that arrived in so many seconds")
    revisions: list[RevisionOutcomes] = Field(max_length=MOST_REVISIONS)


MOST_WEEKS = 104


class WeekOfAgent(WireModel):
    """Figures of one week (Monday to Sunday, UTC); null where nothing was counted. Rates are shares, 0 to 1."""

    week: date = Field(description="its Monday")
    episodes: int = Field(ge=0, description="that arrived; withdrawn ones count for nothing")
    success_rate: float | None = Field(default=None, description="of the episodes that say whether they succeeded")
    completion_seconds: float | None = Field(default=None, description="mean duration of the successful episodes")
    turns: float | None = Field(default=None, description="mean outcome value `turns`, else steps, of the successes")
    satisfaction: float | None = Field(default=None, description="mean opinion of people, -1 to 1, by rated episode")
    rated: int = Field(default=0, ge=0, description="episodes that somebody rated")
    raw_reward: float | None = Field(default=None, description="mean, before normalisation")
    trainings: int = Field(default=0, ge=0, description="runs that ended, well or not")
    training_success_rate: float | None = Field(
        default=None, description="of these, those whose policy passed the gates"
    )
    gains: int = Field(default=0, ge=0, description="of these, those whose gain is known")
    gain_per_training: float | None = Field(
        default=None,
        description="mean over those runs of the held-out return minus that of the policy before, on the same episodes",
    )
    cpu_hours: float | None = Field(default=None, description="that the pods of those runs reserved")
    gpu_hours: float | None = None
    money: float | None = Field(default=None, description="by the installation's prices; null in two currencies")
    currency: str | None = None
    gain_per_hour: float | None = Field(
        default=None,
        description="sum of the gains of runs with GPUs for each GPU-hour; in a week without GPUs, for each CPU-hour",
    )
    promotions: int = Field(default=0, ge=0, description="models that replaced another one at 100 %")
    rollbacks: int = Field(default=0, ge=0, description="models that were rolled back, also after their promotion")
    deployment_success_rate: float | None = Field(default=None, description="promotions among promotions and rollbacks")
    false_rollbacks: int = Field(
        default=0,
        ge=0,
        description="of the rollbacks, those whose episodes returned no less, and succeeded no less often, than the "
        "other revisions' at the same time; at least 10 episodes of each",
    )


class AgentProgress(WireModel):
    """Weeks in their order, the oldest first; a week in which nothing happened is left out."""

    agent: Name
    weeks: list[WeekOfAgent] = Field(max_length=MOST_WEEKS)
