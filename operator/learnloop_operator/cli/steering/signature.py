"""How the commands sign what they write: `WHAT at WHEN by WHO`, as learnloop_api.names describes it."""

from datetime import UTC, datetime

from learnloop_operator.cli.access.cluster import Cluster


def signed(cluster: Cluster, what: str) -> str:
    """The value of an annotation. WHEN makes it a new one, however often the same is decided."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    user = cluster.user()
    return f"{what} at {now} by {user}" if user else f"{what} at {now}"
