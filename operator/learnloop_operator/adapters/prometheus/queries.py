"""PromQL about the arms of a rollout. Every answer tells its parts by the labels `revision` and `learnloop_signal`."""

from collections.abc import Sequence

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import EPISODE_SECONDS_BUCKETS

SIGNAL = "learnloop_signal"
SHORTEST_DUE = 15
"""Seconds of openings that are worth a look: `increase` needs two scrapes inside its window."""
GRACE = 150
"""Seconds: a process that began so shortly before a window may not have been scraped before it, and played little."""
LOOKBACK = 300
"""Seconds before a window in which a series that was there must have a sample: one scrape that failed is no absence."""


def counters_query(
    namespace: str, name: str, revisions: Sequence[str], seconds: int, lately: int = 0, deadline: int = 0
) -> str:
    """All counters of the arms over the window in one vector, told apart by the label `learnloop_signal`.

    `lately`: the episodes that ended in so many seconds too, where it is not 0. `deadline`: the episodes that were
    opened too, those opened more than so many seconds ago, and those that ended sooner. The series without a revision
    is Prometheus' own clock.
    """
    select = arms_of(namespace, name, revisions)
    seen = f"min by (revision) (timestamp({names.METRIC_EPISODES_ENDED}{{{select}}}))"
    parts = [
        grown("ended", "revision, outcome", names.METRIC_EPISODES_ENDED, select, seconds),
        grown("gain", "revision", names.METRIC_EPISODE_RETURN_GAIN, select, seconds),
        grown("loss", "revision", names.METRIC_EPISODE_RETURN_LOSS, select, seconds),
        gap(select, seconds),
        f'label_replace({seen}, "{SIGNAL}", "seen", "", "")',
        f'label_replace(vector(time()), "{SIGNAL}", "clock", "", "")',
    ]
    if lately:
        ended = names.METRIC_EPISODES_ENDED
        parts.append(grown("lately", "revision", ended, select, lately, ', outcome!="withdrawn"'))
    if deadline:
        parts += _openings(select, seconds, deadline)
    return " or ".join(parts)


def _openings(select: str, seconds: int, deadline: int) -> list[str]:
    """What became of opened episodes. One opened before the window is not of it, however old it is."""
    opened, lasted = names.METRIC_EPISODES_OPENED, f"{names.METRIC_EPISODE_SECONDS}_bucket"
    bound = next((each for each in EPISODE_SECONDS_BUCKETS if each >= deadline), EPISODE_SECONDS_BUCKETS[-1])
    parts = [
        grown("opened", "revision", opened, select, seconds),
        grown("in_time", "revision", lasted, select, seconds, f', le="{bound}"'),
    ]
    if seconds - deadline >= SHORTEST_DUE:
        parts.append(grown("due", "revision", opened, select, seconds - deadline, ago=deadline))
    return parts


def latency_query(namespace: str, name: str, revisions: Sequence[str], seconds: int) -> str:
    """Requests of policies by revision and bucket; acting only, which is what users wait for."""
    select, buckets = arms_of(namespace, name, revisions), f"{names.METRIC_REQUEST_SECONDS}_bucket"
    return grown("latency", "revision, le", buckets, select, seconds, ', verb=~"act|infer"')


def all_returns_query(namespace: str, name: str, revisions: Sequence[str], seconds: int) -> str:
    """Returns of ended episodes by revision and bucket."""
    buckets = f"{names.METRIC_EPISODE_RETURN}_bucket"
    return grown("returns", "revision, le", buckets, arms_of(namespace, name, revisions), seconds)


def returns_query(namespace: str, name: str, revisions: Sequence[str], whole: int, recent: int) -> str:
    """Returns of ended episodes by revision and bucket, in all of a time and in its recent part."""
    select, buckets = arms_of(namespace, name, revisions), f"{names.METRIC_EPISODE_RETURN}_bucket"
    spans = (("whole", whole), ("recent", recent))
    return " or ".join(grown(signal, "revision, le", buckets, select, seconds) for signal, seconds in spans)


def grown(signal: str, by: str, metric: str, arms: str, seconds: int, more: str = "", ago: int = 0) -> str:
    """A counter's growth over the window, of the series of `arms` that `more` labels choose; the window ended `ago`
    seconds ago.

    `increase` copes with pods that restart (counter resets) and extrapolates by at most one scrape, but it takes the
    first sample for the beginning. A process that was born in the window has begun at 0, and may well have finished a
    dozen episodes before its first scrape: its counters count as they stand. That there is no sample from before the
    window is not enough to be born in it, for Prometheus may have lost them: the process itself says when it began.
    """
    series = f"{metric}{{{arms}{more}}}"
    back = f" offset {ago}s" if ago else ""
    fresh = f"last_over_time({series}[{seconds}s]{back}) unless {_before(series, seconds + ago)}"
    born = f"{fresh} and on (instance, pod) ({_started(arms, seconds, back)} >= time() - {seconds + ago + GRACE})"
    return labelled(signal, f"sum by ({by}) (({born}) or increase({series}[{seconds}s]{back}))")


def gap(arms: str, seconds: int) -> str:
    """By revision, how many processes began before the window and have no sample from then: what they counted until
    their first sample in it cannot be told from what they counted since the window began."""
    old = f"{_started(arms, seconds)} < time() - {seconds + GRACE}"
    before = _before(f"{names.METRIC_SERVER_STARTED}{{{arms}}}", seconds)
    return labelled("gap", f"count by (revision) (({old}) unless {before})")


def labelled(signal: str, query: str) -> str:
    """The query's answers under the name `signal`."""
    return f'label_replace({query}, "{SIGNAL}", "{signal}", "", "")'


def arms_of(namespace: str, name: str, revisions: Sequence[str]) -> str:
    """Labels that choose the series of the arms."""
    arms = "|".join(sorted(set(revisions)))
    return f'namespace="{namespace}", model_deployment="{name}", revision=~"{arms}"'


def _before(series: str, seconds: int) -> str:
    return f"last_over_time({series}[{LOOKBACK}s] offset {seconds}s)"


def _started(arms: str, seconds: int, back: str = "") -> str:
    """When the processes began that were seen in the window, those that are gone by now too."""
    return f"last_over_time({names.METRIC_SERVER_STARTED}{{{arms}}}[{seconds}s]{back})"
