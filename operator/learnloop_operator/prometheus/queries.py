"""PromQL about the arms of a rollout, and the evidence in its answers.

Labels `revision` and `learnloop_signal` name the parts of an answer.

An arm's series count only when its own pods serve them: a scraped pod chooses its labels, but not the pod label, which
Prometheus sets. Pods that are gone count on, so the names are matched by form: the arm's Deployment, a hash of its
template, and five characters.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import EPISODE_SECONDS_BUCKETS
from learnloop_api.wire.routing import arm_name
from learnloop_operator.prometheus.client import Sample
from learnloop_operator.rollout import evidence, reasons
from learnloop_operator.statistics.latency import Histogram

LONGEST_BASE = 58
"""Characters before the five random ones: Kubernetes cuts longer ones off (apiserver, storage/names/generate.go)."""
LONGEST_HASH = 10
"""Characters of the hash of a Deployment's template, a number of 32 bits in decimal places."""
_RANDOM = "[a-z0-9]{5}"
_REVISION = 8


def own_pods(model_deployment: str, revision: str = "") -> str:
    """A regular expression (RE2) that matches the whole name of each pod of one arm; without `revision`, of all arms.

    Where a ModelDeployment's name is so long that Kubernetes cuts the revision off, less of it is compared.
    """
    name = model_deployment.replace(".", "[.]")
    retained = LONGEST_BASE - len(arm_name(model_deployment, ""))
    if retained < _REVISION:
        begins = arm_name(model_deployment, "")[:LONGEST_BASE].replace(".", "[.]")
        return f"{begins}{_mark(revision, max(0, retained))}{_RANDOM}"
    arm, rest = arm_name(name, _mark(revision, _REVISION)), retained - _REVISION - 1
    if rest > LONGEST_HASH:
        return f"{arm}-[a-z0-9]{{1,{LONGEST_HASH}}}-{_RANDOM}"
    if rest > 0:
        return f"{arm}-([a-z0-9]{{1,{LONGEST_HASH}}}-|[a-z0-9]{{{rest}}}){_RANDOM}"
    return f"{arm}{'-' if rest == 0 else ''}{_RANDOM}"


def _mark(revision: str, characters: int) -> str:
    return revision[:characters] if revision or not characters else f"[0-9a-f]{{{characters}}}"


SIGNAL = "learnloop_signal"
SHORTEST_DUE = 15
"""Seconds of openings that are worth a look: `increase` needs two scrapes inside its window."""
SHORT = (1 / 60, 1 / 2)
"""Parts of the deadline between which the bounds of short episodes lie."""
GRACE = 150
"""Seconds: a process that began so shortly before a window may not have been scraped before it, and played little."""
LOOKBACK = 300
"""Seconds before a window in which a series that was there must have a sample: one failed scrape is not an absence."""


@dataclass(frozen=True, slots=True)
class Arms:
    """Series to read: those of the revisions' own pods, matched by `pod_label`; "": of any pods."""

    namespace: str
    name: str
    revisions: Sequence[str]
    pod_label: str = evidence.POD_LABEL

    def selectors(self) -> list[str]:
        """Labels that choose the series of each arm."""
        return [self.of(revision) for revision in sorted(set(self.revisions))]

    def of(self, revision: str, *, by: str | None = None) -> str:
        """Labels that choose one revision's series, as its own pods count them; `by` "": as pods of any arm do."""
        return self._counted_by(revision if by is None else by, f', revision="{revision}"')

    def processes(self) -> str:
        """Labels that choose the processes of all arms, whichever revision they serve."""
        return self._counted_by("", "")

    def _counted_by(self, revision: str, more: str) -> str:
        own = f', {self.pod_label}=~"{own_pods(self.name, revision)}"' if self.pod_label else ""
        return f'namespace="{self.namespace}", model_deployment="{self.name}"{more}{own}'


def counters_query(arms: Arms, seconds: int, lately: int = 0, deadline: int = 0) -> str:
    """All counters of the arms over the window in one vector, told apart by the label `learnloop_signal`.

    `lately`: the episodes that ended in so many seconds too, where it is not 0. `deadline`: the episodes that were
    opened too, those opened more than so many seconds ago, and those that ended sooner. The series without a revision
    is Prometheus' own clock.
    """
    revisions = sorted(set(arms.revisions))
    parts = [part for revision in revisions for part in _counters_of(arms, revision, seconds, lately, deadline)]
    return " or ".join([*parts, f'label_replace(vector(time()), "{SIGNAL}", "clock", "", "")'])


def _counters_of(arms: Arms, revision: str, seconds: int, lately: int, deadline: int) -> Iterator[str]:
    ended, select = names.METRIC_EPISODES_ENDED, arms.of(revision)
    yield grown("ended", "revision, outcome", ended, select, seconds)
    yield grown("gain", "revision", names.METRIC_EPISODE_RETURN_GAIN, select, seconds)
    yield grown("loss", "revision", names.METRIC_EPISODE_RETURN_LOSS, select, seconds)
    yield gap(select, seconds)
    yield labelled("scraped", f"min by (revision) (timestamp({ended}{{{select}}}))")
    if lately:
        yield grown("lately", "revision", ended, select, lately, ', outcome!="withdrawn"')
    if deadline:
        yield from _openings(arms, revision, seconds, deadline)


def _openings(arms: Arms, revision: str, seconds: int, deadline: int) -> Iterator[str]:
    """Outcomes of opened episodes, and the durations of those that ended.

    A pod counts each episode that it opens under the arm that it gives it to, so pods of any arm count openings.
    `young`: by bucket, endings of episodes that were certainly opened within the deadline. What ends in the last
    `deadline - le` seconds and has lasted no longer than `le` was.
    """
    opened, lasted = names.METRIC_EPISODES_OPENED, f"{names.METRIC_EPISODE_SECONDS}_bucket"
    own, processes = arms.of(revision), arms.processes()
    bound = next((each for each in EPISODE_SECONDS_BUCKETS if each >= deadline), EPISODE_SECONDS_BUCKETS[-1])
    select = arms.of(revision, by="")
    yield grown("opened", "revision", opened, select, seconds, processes=processes)
    yield grown("in_time", "revision", lasted, own, seconds, f', le="{bound}"')
    yield grown("lasted", "revision, le", lasted, own, seconds)
    if seconds - deadline >= SHORTEST_DUE:
        yield grown("due", "revision", opened, select, seconds - deadline, ago=deadline, processes=processes)
        for young in short_bounds(deadline):
            within = f', le="{young}"'
            yield grown("young", "revision, le", lasted, own, int(deadline - young), within)


def short_bounds(deadline: int) -> list[float]:
    """Bounds of the histogram that tell of episodes much shorter than the deadline."""
    least, most = (part * deadline for part in SHORT)
    return [bound for bound in EPISODE_SECONDS_BUCKETS if least <= bound <= most]


def latency_query(arms: Arms, seconds: int) -> str:
    """Requests of policies by revision and bucket; acting only, which is what users wait for."""
    buckets, acting = f"{names.METRIC_REQUEST_SECONDS}_bucket", ', verb=~"act|infer"'
    return " or ".join(grown("latency", "revision, le", buckets, arm, seconds, acting) for arm in arms.selectors())


def grown(
    signal: str, by: str, metric: str, arms: str, seconds: int, more: str = "", ago: int = 0, processes: str = ""
) -> str:
    """A counter's growth over the window, of the series of `arms` that `more` labels choose; the window ended `ago`
    seconds ago.

    `increase` copes with pods that restart (counter resets) and extrapolates by at most one scrape, but it takes the
    first sample for the beginning. A process that was born in the window has begun at 0, and may well have finished a
    dozen episodes before its first scrape: its counters count as they stand, as long as no container of its pod has
    started again since. A missing sample from before the window is not enough to be born in it, for Prometheus may have
    lost them: the process itself says when it began.

    `processes`: labels of the processes that count, where they count for other revisions than their own. Such a series
    begins at 0 when its process counts for the first time: in the window, where the process has a sample from before.
    """
    series = f"{metric}{{{arms}{more}}}"
    back = f" offset {ago}s" if ago else ""
    restarted = f"resets({series}[{seconds}s]{back}) > 0"
    fresh = f"last_over_time({series}[{seconds}s]{back}) unless {_before(series, seconds + ago)} unless {restarted}"
    begun = f"{_started(processes or arms, seconds, back)} >= time() - {seconds + ago + GRACE}"
    if processes:
        begun += f" or {_before(f'{names.METRIC_SERVER_STARTED}{{{processes}}}', seconds + ago)}"
    return labelled(
        signal, f"sum by ({by}) (({fresh} and on (instance, pod) ({begun})) or increase({series}[{seconds}s]{back}))"
    )


def gap(arms: str, seconds: int) -> str:
    """By revision, how many processes began before the window and have no sample from then: what they counted until
    their first sample in it cannot be told from what they counted since the window began."""
    old = f"{_started(arms, seconds)} < time() - {seconds + GRACE}"
    before = _before(f"{names.METRIC_SERVER_STARTED}{{{arms}}}", seconds)
    return labelled("gap", f"count by (revision) (({old}) unless {before})")


def labelled(signal: str, query: str) -> str:
    """The query's answers under the name `signal`."""
    return f'label_replace({query}, "{SIGNAL}", "{signal}", "", "")'


def _before(series: str, seconds: int) -> str:
    return f"last_over_time({series}[{LOOKBACK}s] offset {seconds}s)"


def _started(arms: str, seconds: int, back: str = "") -> str:
    """When the processes began that were seen in the window, those that are gone by now too."""
    return f"last_over_time({names.METRIC_SERVER_STARTED}{{{arms}}}[{seconds}s]{back})"


_FINISHED = ("success", "failure", "error")


@dataclass(slots=True)
class _Sums:
    """Sums of one arm so far."""

    ended: dict[str, float] = field(default_factory=dict)
    gained: float | None = None
    scraped_at: datetime | None = None
    lately: float | None = None
    gap: float = 0.0
    opened: dict[str, float] = field(default_factory=dict)
    """Counts of opened episodes by their fate, the signal."""
    broken: str = ""


def arm_evidence(samples: Sequence[Sample]) -> dict[str, evidence.ArmEvidence]:
    """Evidence by revision from the answer to `counters_query`.

    Episodes that a person or a limit touched, or that were cut off with a withdrawn arm, have ended and count for
    nothing else: the servers do not sum their returns.
    """
    arms: dict[str, _Sums] = {}
    for sample in samples:
        if revision := sample.labels.get("revision", ""):
            _add(arms.setdefault(revision, _Sums()), sample)
    lasted = histograms(samples, "lasted")
    return {
        revision: _arm(sums, lasted.get(revision, {})) for revision, sums in arms.items() if sums.ended or sums.broken
    }


def clock_of(samples: Iterable[Sample]) -> datetime | None:
    """Prometheus' own clock in the answer to `counters_query`."""
    return next((moment(item.value) for item in samples if item.labels.get(SIGNAL) == "clock"), None)


def histograms(samples: Iterable[Sample], signal: str) -> dict[str, Histogram]:
    """Cumulative counts by revision and bound. A bucket without a finite count is left out."""
    result: dict[str, dict[float, float]] = {}
    for sample in samples:
        bound = _bound(sample.labels.get("le"))
        if sample.labels.get(SIGNAL) == signal and bound is not None and math.isfinite(sample.value):
            result.setdefault(sample.labels.get("revision", ""), {})[bound] = max(0.0, sample.value)
    return {revision: _rising(counts) for revision, counts in result.items()}


def _add(sums: _Sums, sample: Sample) -> None:
    signal, value = sample.labels.get(SIGNAL), sample.value
    if not math.isfinite(value):
        sums.broken = f"Prometheus answers {value} for its {signal} counter"
    elif signal == "ended":
        sums.ended[sample.labels.get("outcome", "")] = max(0.0, value)
    elif signal in ("gain", "loss"):
        sums.gained = (sums.gained or 0.0) + (value if signal == "gain" else -value)
    elif signal == "scraped":
        sums.scraped_at = moment(value)
    elif signal == "lately":
        sums.lately = value
    elif signal == "gap":
        sums.gap = value
    elif signal in ("opened", "due", "in_time"):
        sums.opened[signal] = max(0.0, value)
    elif signal == "young":  # each bucket is a lower bound of the same number
        sums.opened[signal] = max(sums.opened.get(signal, 0.0), value)


def _arm(sums: _Sums, lasted: Histogram) -> evidence.ArmEvidence:
    finished = sum(sums.ended.get(outcome, 0.0) for outcome in _FINISHED)
    lately = None if sums.lately is None else round(sums.lately)
    bare = evidence.ArmEvidence(
        scraped_at=sums.scraped_at, lately=lately, gap=round(sums.gap), openings=_opened(sums, lasted)
    )
    if finished <= 0:
        return bare
    counted = replace(bare, episodes=int(finished + 1e-6))
    if sums.broken:
        return replace(counted, problems={"": evidence.Missing(reasons.NOT_A_NUMBER, sums.broken)})
    return replace(
        counted,
        mean_return=None if sums.gained is None else sums.gained / finished,
        success_rate=sums.ended.get("success", 0.0) / finished,
        error_rate=sums.ended.get("error", 0.0) / finished,
    )


def _opened(sums: _Sums, lasted: Histogram) -> evidence.Openings | None:
    previous, closed = sums.opened, sum(sums.ended.values())
    if "opened" not in previous or sums.broken:
        return None
    young = min(closed, previous.get("young", 0.0))
    return evidence.Openings(
        previous["opened"], previous.get("due", 0.0), closed, previous.get("in_time"), young, lasted
    )


def moment(value: float) -> datetime | None:
    """Unix time as a moment; None where it is none."""
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _bound(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _rising(counts: Mapping[float, float]) -> Histogram:
    """Extrapolated one by one, buckets may fall by a hair; cumulative counts never do."""
    most, result = 0.0, {}
    for bound in sorted(counts):
        most = max(most, counts[bound])
        result[bound] = most
    return result
