"""What a token opens that is of a training run's rank or of a gate suite: what these do, and nothing beside it.

Their pods run what others wrote: environments, and suites of strangers. With an agent's token each of them could tell
episodes and opinions, write memories, and read all that its namespace has experienced.
"""

import re
from typing import Literal

from learnloop_api import names
from learnloop_dataplane.errors import ApiError

Bearer = Literal["rank", "gate suite"]
AUDIENCES: dict[str, Bearer] = {names.RUN_AUDIENCE: "rank", names.GATE_AUDIENCE: "gate suite"}
OPEN: dict[Bearer, tuple[tuple[str, str], ...]] = {
    "rank": (
        # Its own run alone, where there is a cluster to ask: kubernetes/training_ranks.py.
        ("PUT", "/api/v1/training/runs/{}/heartbeat"),
        ("PUT", "/api/v1/training/runs/{}/checkpoint"),
        ("PUT", "/api/v1/training/runs/{}/manifest"),
        ("GET", "/api/v1/training/runs/{}"),
        ("GET", "/api/v1/training/runs/{}/checkpoint"),
        ("PUT", "/api/v1/artifacts"),
        ("GET", "/api/v1/artifacts/{}"),
        ("GET", "/api/v1/experience/observations"),
        ("GET", "/api/v1/experience/trajectories"),
        ("GET", "/api/v1/preferences"),
        ("GET", "/api/v1/rewards/policies/{}/revisions/{}"),
    ),
    "gate suite": (("PUT", "/api/v1/models/{}/gates/{}/report"),),
}
"""By method and path; {} is one name."""
_MATCHING = {
    bearer: re.compile("|".join(f"{method} {path.replace('{}', '[^/]+')}" for method, path in routes))
    for bearer, routes in OPEN.items()
}


def bearer_of(audiences: frozenset[str]) -> Bearer | None:
    """Whose a token for these audiences is, which is for no agent's; None: it is neither a rank's nor a suite's."""
    return next((bearer for audience, bearer in AUDIENCES.items() if audience in audiences), None)


def require_open(bearer: Bearer, method: str, path: str) -> None:
    """Returns where the token opens this.

    Raises:
        ApiError: 403.
    """
    if not _MATCHING[bearer].fullmatch(f"{method} {path}"):
        raise ApiError(403, f"the token of a {bearer} does not open {method} {path[:200]}", field="authorization")
