"""The checks of a rollout: thresholds and sequential tests, and what the latter have found."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import ObjectName, Resource, Rule, ShortText, Time

EPISODE_SECONDS_BUCKETS = (
    1.0,
    3.0,
    10.0,
    30.0,
    60.0,
    120.0,
    180.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    7200.0,
    21600.0,
    43200.0,
    86400.0,
)
"""Bounds of the policy servers' histogram of how long episodes last; a deadline is compared at the next one."""


class ReturnRange(Resource):
    """Range of the returns of all episodes."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.lowest < self.highest", "lowest must be below highest", ".lowest"),
    )

    lowest: float = Field(description="No episode returns less.")
    highest: float = Field(description="No episode returns more.")


class MetricThreshold(Resource):
    """One check of the canary; missing data holds, it never passes and never rolls back."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.type == 'promql') == has(self.query)",
            "set query with type promql, and only then",
            ".query",
        ),
        Rule(
            "has(self.min) || has(self.max) || has(self.minRatio) || has(self.maxRatio) || self.test == 'sequential'",
            "a check without a bound checks nothing: set min, max, minRatio or maxRatio",
        ),
        Rule(
            "self.type != 'promql' || self.test == 'threshold'",
            "a query counts no events: compare it with test: threshold",
            ".test",
        ),
        Rule(
            "(!has(self.minRatio) || !(self.type in ['errors', 'latency']))"
            " && (!has(self.maxRatio) || self.type in ['errors', 'latency', 'promql'])",
            "a ratio bounds the worse side: maxRatio with errors and latency, minRatio with the other types",
        ),
        Rule(
            "!has(self.quantile) || self.type == 'latency'",
            "quantile goes with type latency only: remove it",
            ".quantile",
        ),
        Rule(
            "(self.test == 'sequential') == has(self.maxDrop)",
            "set maxDrop with test: sequential, and only then",
            ".maxDrop",
        ),
        Rule(
            "!has(self.maxDrop) || self.type == 'return' || self.type == 'reward'"
            " || self.maxDrop < (self.type == 'feedback' ? 2.0 : 1.0)",
            "maxDrop tolerates every loss there can be: make it less than 1, a share, e.g. 0.05; or less than 2 with "
            "type feedback, whose opinions go from -1 to 1",
            ".maxDrop",
        ),
        Rule(
            "self.test != 'sequential' || !(has(self.minRatio) || has(self.maxRatio))",
            "ratios go with test: threshold only: remove them, maxDrop says what is tolerated",
            ".test",
        ),
        Rule(
            "!has(self.returnRange) || self.type == 'return' || self.type == 'reward'",
            "returnRange goes with types return and reward only: remove it",
            ".returnRange",
        ),
        Rule(
            "(self.type != 'return' && self.type != 'reward') || has(self.returnRange)",
            "set returnRange with types return and reward: where returns lie, or raw rewards, e.g. -0.25 to 1 with the "
            "default components",
            ".returnRange",
        ),
        Rule(
            "!has(self.returnRange) || !has(self.maxDrop)"
            " || self.maxDrop < self.returnRange.highest - self.returnRange.lowest",
            "maxDrop must be less than returnRange is wide",
            ".maxDrop",
        ),
        Rule("!has(self.min) || !has(self.max) || self.min <= self.max", "min must not be above max", ".min"),
        Rule(
            "!has(self.minRatio) || !has(self.maxRatio) || self.minRatio <= self.maxRatio",
            "minRatio must not be above maxRatio",
            ".minRatio",
        ),
    )

    name: ObjectName = Field(description="Unique within the analysis; verdicts and events say it.")
    type: Literal["success", "return", "errors", "reward", "feedback", "latency", "promql"] = Field(
        description=(
            "What is measured. success: share of successful episodes. return: mean episode return. "
            "errors: share of episodes that ended in error. reward: mean raw reward that the "
            "RewardPolicy gave, as the data plane counts it. feedback: mean opinion of people, -1 to 1, "
            "over the rated episodes. latency: a quantile of the seconds that a policy request takes. "
            "promql: the number that `query` returns. "
            "There, $revision, $namespace, $pods (a regular expression of the names of the arm's own pods) and $window "
            "(since the rollout began, such as 90s) are replaced."
        )
    )
    query: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description=(
            "PromQL over this namespace's series; required for type promql. "
            "Its number is compared directly at every look: smooth it in the query itself, e.g. by avg_over_time."
        ),
    )
    quantile: float | None = Field(
        default=None, ge=0.5, le=0.999, description="Which quantile of type latency is meant; left out, 0.99."
    )
    min: float | None = Field(default=None, description="Lowest acceptable value.")
    max: float | None = Field(default=None, description="Highest acceptable value.")
    min_ratio: float | None = Field(
        default=None, gt=0, description="Lowest acceptable value as a multiple of the stable arm's."
    )
    max_ratio: float | None = Field(
        default=None, gt=0, description="Highest acceptable value as a multiple of the stable arm's."
    )
    min_episodes: int = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description="Canary episodes before this check may speak; with reward and feedback, those rewarded or rated.",
    )
    test: Literal["threshold", "sequential"] = Field(
        default="threshold",
        description=(
            "threshold: min, max, minRatio and maxRatio alone. A step passes when what was seen is "
            "within them. The canary goes back when a bound is broken for certain, however often the "
            "operator looks, and holds in between. A promql query is compared as it "
            "stands, for the number of events behind it is unknown. sequential: an always-valid"
            " test against stable as it serves at the same time. It rolls the canary back when the "
            "canary is proven worse. It passes a step when the canary is proven not to be worse by "
            "maxDrop, and holds until then. min and max still count."
        ),
    )
    max_drop: float | None = Field(
        default=None,
        gt=0,
        description=(
            "The loss against stable that would matter. For success and errors it is a share of "
            "episodes. For latency it is the share of requests slower than stable's quantile. For return, reward "
            "and feedback it is in their own unit. Half of it takes about four times the episodes."
        ),
    )
    return_range: ReturnRange | None = Field(
        default=None,
        description=(
            "Where returns lie, or raw rewards; required with types return and reward. A mean outside it holds "
            "(OutOfRange); a canary's below it, while stable's lies within it, rolls the canary back. Without it no "
            "number of episodes bounds their mean."
        ),
    )


class FastLane(Resource):
    """Direct readings of the own pods of arms on trial, each second, in addition to Prometheus."""

    enabled: bool = Field(
        default=True,
        description=(
            "Read the metrics of each arm on trial (canary, experiment, guard) from its pods "
            "every second. Roll the arm back immediately when it breaks a bound beyond doubt. Bounds are "
            "maxRequestErrors, and min or max of a metric (success, errors, "
            "return, latency). It never promotes. Needs a way from the operator to the "
            "pods' port 8081; the condition FastLane says whether it is there. Without it Prometheus alone "
            "decides."
        ),
    )
    max_request_errors: float = Field(
        default=0.05,
        gt=0,
        le=1,
        description=(
            "Share of the requests for an action that may fail because of the policy or its server; 1 turns it off."
        ),
    )


def _default_metrics() -> list[MetricThreshold]:
    return [
        MetricThreshold(name="success", type="success", min_ratio=0.8),
        MetricThreshold(name="errors", type="errors", max=0.05),
    ]


class Analysis(Resource):
    """Checks at every step and while guarding."""

    interval_seconds: int = Field(default=5, ge=1, le=3600, description="Seconds between two looks at the metrics.")
    metrics: list[MetricThreshold] = Field(
        default_factory=_default_metrics,
        min_length=1,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="A step passes when all pass. One that is broken for certain rolls the canary back; else it holds.",
    )
    alpha: float = Field(
        default=0.01,
        ge=1e-6,
        le=0.2,
        description=(
            "Chance of a wrong action of all sequential tests and bounds together over a whole rollout, "
            "however often the operator looks. It is wrong to roll a canary back that is as good as "
            "stable and keeps to all bounds. It is wrong to pass one that is worse by the maxDrop of a "
            "sequential test. The fast lane may roll back a canary that keeps to all bounds with a tenth"
            " of this chance more. Queries that are compared as they stand are outside of it."
        ),
    )
    fast_lane: FastLane = Field(default_factory=FastLane)
    episode_deadline_seconds: int = Field(
        default=600,
        ge=10,
        le=86_400,
        description=(
            "An episode that was opened so long ago and has not ended is overdue, and an overdue episode is a failure. "
            "Set it to more than your longest episodes take. Where stable's own episodes take longer, or do not end, "
            "as large a share of the canary's is excused."
        ),
    )
    max_overdue: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description=(
            "Share of its overdue episodes, beyond stable's, that rolls an arm back when it is certain; 1 turns it "
            "off. It may err with half of alpha. In addition, a step waits until the canary has ended at least half "
            "of the share of its opened episodes that stable has ended."
        ),
    )


class MetricEvidence(Resource):
    """State of a comparison with stable in this rollout: all that it needs to continue after a restart."""

    name: ObjectName = Field(description="The metric.")
    claim: ShortText = Field(description="What is tested; evidence for another claim is not carried over.")
    verdict: Literal["fine", "worse", "undecided"] = Field(
        description=(
            "fine: not worse by maxDrop, or within the bounds; worse: worse than stable, or beyond a bound; undecided: "
            "more episodes are needed."
        )
    )
    chance_worse: float | None = Field(
        default=None, description="1 minus the always-valid p-value of 'as good as stable'."
    )
    chance_fine: float | None = Field(
        default=None, description="1 minus the always-valid p-value of 'worse by maxDrop'."
    )
    needed_episodes: int | None = Field(
        default=None, ge=0, description="Canary episodes until a verdict if the rates stay as they are."
    )
    estimated_at: Time | None = Field(
        default=None, description="About when the verdict is due at the present rate of episodes."
    )
    bound_seconds: float | None = Field(
        default=None,
        description="latency: the bound of stable's histogram at the quantile, fixed before the comparison began.",
    )
    block: float | None = Field(
        default=None,
        ge=1,
        description=(
            "latency: requests that count as one observation, the mean of an episode of stable, because requests of "
            "one episode are not independent."
        ),
    )
    log_worse: float | None = Field(default=None, description="Logarithm of the e-value of 'worse'.")
    log_fine: float | None = Field(default=None, description="Logarithm of the e-value of 'fine'.")
    judged: list[float] | None = Field(
        default=None,
        max_length=4,
        description="Episodes compared and the sum of their values (0 to 1): two numbers of the canary, two of stable.",
    )
    stable_total: float | None = Field(
        default=None,
        description="What as many episodes of stable as the canary's would have added up to, each of the same time.",
    )
    counted: list[float] | None = Field(
        default=None, max_length=4, description="The same counted by the source at the last comparison."
    )
