"""The figures that `make bench-pipeline` is judged by, and where each is found in what its parts print."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Goal:
    """One figure and its bar.

    Args:
        name: of the figure in the summary.
        part: whose output has it.
        path: the keys that lead to it there.
        bar: "most", "least": a number that must not be passed or missed; "is": what it must be.
    """

    name: str
    part: str
    path: tuple[str, ...]
    kind: Literal["most", "least", "is"]
    bar: float

    def of(self, parts: Mapping[str, Any]) -> Any:
        """The figure, None where its part was not run or did not come to its end."""
        value: Any = parts.get(self.part)
        for key in self.path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def met(self, figure: Any) -> bool:
        """A figure that is missing meets nothing."""
        if figure is None:
            return False
        return bool({"most": figure <= self.bar, "least": figure >= self.bar, "is": figure == self.bar}[self.kind])


GOALS = (
    Goal("accepted_http_p99_ms", "latency", ("accepted_http", "p99_ms"), "most", 50.0),
    Goal("accepted_nats_p99_ms", "latency", ("accepted_nats", "p99_ms"), "most", 50.0),
    Goal("reward_p99_ms", "latency", ("reward_worker", "p99_ms"), "most", 50.0),
    Goal("reward_alone_p99_ms", "latency", ("reward_alone", "p99_ms"), "most", 50.0),
    Goal("reward_amortised_p99_ms", "latency", ("reward_worker_amortised", "p99_ms"), "most", 50.0),
    Goal("reward_calculate_http_p99_ms", "latency", ("reward_calculate_http", "p99_ms"), "most", 50.0),
    Goal("page_of_a_log_p99_ms", "history", ("page", "p99_ms"), "most", 100.0),
    Goal("whole_log_seconds", "history", ("seconds",), "most", 300.0),
    Goal("secrets_planted", "redaction", ("planted",), "least", 100_000),
    Goal("secrets_leaked", "redaction", ("leaked_together",), "is", 0),
    Goal("secrets_leaked_by_publisher", "redaction", ("leaked", "publisher"), "is", 0),
    Goal("secrets_leaked_by_consumer", "redaction", ("leaked", "consumer"), "is", 0),
    Goal("secrets_leaked_by_memory", "redaction", ("leaked", "memory"), "is", 0),
    Goal("pseudonyms_unstable", "redaction", ("unstable",), "is", 0),
    Goal("trajectories_under_kills", "chaos", ("trajectories",), "least", 100_000),
    Goal("processes_killed", "chaos", ("processes_killed",), "least", 5),
    Goal("kills_of_nats", "chaos", ("kills", "nats"), "least", 1),
    Goal("kills_of_postgresql", "chaos", ("kills", "postgres"), "least", 1),
    Goal("kills_of_the_warehouse", "chaos", ("kills", "warehouse"), "least", 1),
    Goal("lost", "chaos", ("lost",), "is", 0),
    Goal("counted_twice", "chaos", ("counted_twice",), "is", 0),
    Goal("adversarial_statements", "tenancy", ("statements",), "least", 1_000_000),
    Goal("rows_of_another_tenant", "tenancy", ("leaked",), "is", 0),
    Goal("victims_tables_empty", "tenancy", ("victims_tables_empty",), "is", 0),
    Goal("victims_rows_lost", "tenancy", ("victims_rows_lost",), "is", 0),
    Goal("openapi_findings", "conformance", ("returncode",), "is", 0),
    Goal("openapi_requests", "conformance", ("requests_sent",), "least", 1),
    Goal("openapi_operations_not_exercised", "conformance", ("operations_not_exercised",), "is", 0),
    Goal("fuzzed_events", "fuzzed", ("events",), "least", 2000),
    Goal("fuzzed_disagreements_with_schema", "fuzzed", ("disagreements_with_schema",), "is", 0),
    Goal("fuzzed_valid_not_stored_once", "fuzzed", ("valid_but_not_stored_once",), "is", 0),
    Goal("fuzzed_good_not_stored_once", "fuzzed", ("good_not_stored_once",), "is", 0),
    Goal("fuzzed_bad_stored", "fuzzed", ("bad_stored",), "is", 0),
    Goal("consumer_alive", "fuzzed", ("consumer_alive",), "is", True),
    Goal("within_target_from_us", "overhead", ("elsewhere", "within_target_from_us_per_step"), "most", 1000.0),
    Goal("step_overhead_1_ms", "overhead", ("elsewhere", "steps_of_1_ms", "overhead_over_acting"), "most", 0.05),
    Goal("step_overhead_10_ms", "overhead", ("elsewhere", "steps_of_10_ms", "overhead_over_acting"), "most", 0.05),
    Goal("record_us_per_call", "overhead", ("elsewhere", "record_us_per_call"), "most", 2.0),
    Goal("episodes_left", "overhead", ("elsewhere", "episodes_left"), "is", 0),
)
