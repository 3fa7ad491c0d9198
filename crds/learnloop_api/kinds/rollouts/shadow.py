"""Shadow steps: what a canary must show on copies of live requests before the first user sees it."""

from pydantic import Field

from learnloop_api.kinds.base import Resource, ShortText


class ShadowCheck(Resource):
    """The bars of one shadow step. Missing data holds; a certain breach rolls the canary back."""

    min_requests: int = Field(
        default=200, ge=1, le=100_000_000, description="Requests compared with stable's answers before the next step."
    )
    min_agreement: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=(
            "Lowest share of compared requests for which both arms choose the same greedy action (continuous policies: "
            "an action within maxDistance). Left out, agreement is only reported: a better model may well disagree."
        ),
    )
    max_distance: float = Field(
        default=0.05,
        ge=0,
        description="Continuous policies agree when no number of the two actions differs by more than this.",
    )
    max_error_rate: float = Field(
        default=0.01, ge=0, lt=1, description="Highest share of copied requests the canary may fail on."
    )
    max_latency_seconds: float | None = Field(
        default=None,
        gt=0,
        le=5,
        description=(
            "The shadow must answer 99 of 100 copied requests within this. It is counted at the next "
            "bound of the histogram: 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 250, 500 ms, 1, 2.5, 5 s."
        ),
    )
    min_return_ratio: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Lowest off-policy estimate of the canary's mean return as a multiple of stable's; see "
            "minEffectiveEpisodes. Left out, the estimate is only reported."
        ),
    )
    min_effective_episodes: int = Field(
        default=30,
        ge=2,
        le=1_000_000,
        description=(
            "The estimate is silent below this effective sample size: with too few of stable's episodes that the "
            "canary could have played itself, importance weights say nothing."
        ),
    )
    percent: int = Field(
        default=100,
        ge=1,
        le=100,
        description="Share of stable's episodes that are copied; whole episodes, never parts.",
    )


class ShadowStatus(Resource):
    """What copies of live requests have shown. Rewritten when it tells something new, not at every look."""

    requests: int = Field(ge=0, description="Requests compared with stable's answers.")
    agreement: float | None = Field(default=None, ge=0, le=1, description="Share with the same greedy action.")
    error_rate: float | None = Field(default=None, ge=0, le=1, description="Share the canary failed on.")
    slow_rate: float | None = Field(default=None, ge=0, le=1, description="Share slower than maxLatencySeconds.")
    estimated_return: float | None = Field(
        default=None,
        description="Estimate of the canary's mean return by importance sampling; absent while it is too unsure.",
    )
    estimated_low: float | None = Field(
        default=None,
        description="Lower end of its interval of 95 %, asymptotic and of this look alone: it decides nothing.",
    )
    estimated_high: float | None = Field(default=None, description="Upper end of that interval.")
    stable_return: float | None = Field(default=None, description="Mean return of stable in the same episodes.")
    effective_episodes: float | None = Field(
        default=None, ge=0, description="Effective sample size of the estimate, in episodes."
    )
    message: ShortText = Field(description="The same in one sentence.")
