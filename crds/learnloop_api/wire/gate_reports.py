"""Report of a gate suite on a candidate: counts alone. The operator computes every bound from them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from learnloop_api.wire.base import MOST, Name, Sentence, Sha256, Timestamp, WireModel

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
    """Detector that told failures from good answers, with its counts on its own labelled set."""

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
        """Failures of all categories."""
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
