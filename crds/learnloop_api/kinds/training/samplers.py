"""Pods that play the environment beside the learner, for environments that are slow."""

from pydantic import Field

from learnloop_api.kinds.base import Resource, Resources


class Samplers(Resource):
    """Pods that only play: they are no ranks. Each sends what it saw to the learner, and gets the newest policy."""

    count: int = Field(
        ge=0,
        le=256,
        description="Sampler pods. May be changed while the run goes on; one that is lost costs the steps it had not "
        "sent, and nothing else. 0: the learner waits.",
    )
    environments: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Environments that each sampler plays side by side. With ppo an update takes ppo.environments "
        "pieces of horizon steps, whoever played them: keep ppo.environments at count × this, or above.",
    )
    max_staleness: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Steps that were taken by a policy more versions old than this are dropped, and counted. Left out: "
        "4 for ppo; 1024 for dqn and sac, which learn from old steps anyway.",
    )
    ratio_max: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="With ppo: cap of the importance ratio by which steps of an older policy are corrected (V-trace, "
        "arXiv 1802.01561).",
    )
    resources: Resources | None = Field(
        default=None, description="Of each sampler pod; all else of its pod is as spec.pod says, but for its claims."
    )
