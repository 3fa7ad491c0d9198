"""PromQL about the arms of a rollout. Every answer tells its parts by the labels `revision` and `learnloop_signal`."""

from collections.abc import Sequence

from learnloop_api import names
from learnloop_api.kinds.analysis import MetricThreshold

SIGNAL = "learnloop_signal"


def counters_query(namespace: str, name: str, revisions: Sequence[str], seconds: int, lately: int = 0) -> str:
    """All counters of the arms over the window in one vector, told apart by the label `learnloop_signal`.

    `lately`: the episodes that ended in so many seconds too, where it is not 0. The series without a revision is
    Prometheus' own clock.
    """
    select = _select(namespace, name, revisions)
    seen = f"min by (revision) (timestamp({names.METRIC_EPISODES_ENDED}{{{select}}}))"
    parts = [
        _part("ended", "revision, outcome", names.METRIC_EPISODES_ENDED, select, seconds),
        _part("gain", "revision", names.METRIC_EPISODE_RETURN_GAIN, select, seconds),
        _part("loss", "revision", names.METRIC_EPISODE_RETURN_LOSS, select, seconds),
        f'label_replace({seen}, "{SIGNAL}", "seen", "", "")',
        f'label_replace(vector(time()), "{SIGNAL}", "clock", "", "")',
    ]
    if lately:
        finished = f'{select}, outcome!="withdrawn"'
        parts.append(_part("lately", "revision", names.METRIC_EPISODES_ENDED, finished, lately))
    return " or ".join(parts)


def latency_query(namespace: str, name: str, revisions: Sequence[str], seconds: int) -> str:
    """Requests of policies by revision and bucket; acting only, which is what users wait for."""
    select = _select(namespace, name, revisions) + ', verb=~"act|infer"'
    return _part("latency", "revision, le", f"{names.METRIC_REQUEST_SECONDS}_bucket", select, seconds)


def returns_query(namespace: str, name: str, revisions: Sequence[str], whole: int, recent: int) -> str:
    """Returns of ended episodes by revision and bucket, in all of a time and in its recent part."""
    select, buckets = _select(namespace, name, revisions), f"{names.METRIC_EPISODE_RETURN}_bucket"
    spans = (("whole", whole), ("recent", recent))
    return " or ".join(_part(signal, "revision, le", buckets, select, seconds) for signal, seconds in spans)


def custom_query(query: str | None, namespace: str, revision: str, seconds: int) -> str:
    """The user's query with $revision, $namespace and $window filled in."""
    text = (query or "").replace("$revision", revision).replace("$namespace", namespace)
    return text.replace("$window", f"{seconds}s")


def custom_queries(metric: MetricThreshold, namespace: str, revision: str, seconds: int) -> tuple[str, ...]:
    """One query, or for a sequential test that of the good events and that of all of them."""
    asked = (metric.query, metric.total_query) if metric.test == "sequential" else (metric.query,)
    return tuple(custom_query(query, namespace, revision, seconds) for query in asked)


def _part(signal: str, by: str, metric: str, select: str, seconds: int) -> str:
    """A counter's growth over the window.

    `increase` copes with pods that restart (counter resets) and extrapolates by at most one scrape, but it takes the
    first sample for the beginning. A pod that was born in the window has begun at 0, and may well have finished a
    dozen episodes before its first scrape: its counters count as they stand.
    """
    series = f"{metric}{{{select}}}"
    born = f"last_over_time({series}[{seconds}s]) unless {series} offset {seconds}s"
    total = f"sum by ({by}) (({born}) or increase({series}[{seconds}s]))"
    return f'label_replace({total}, "{SIGNAL}", "{signal}", "", "")'


def _select(namespace: str, name: str, revisions: Sequence[str]) -> str:
    arms = "|".join(sorted(set(revisions)))
    return f'namespace="{namespace}", model_deployment="{name}", revision=~"{arms}"'
