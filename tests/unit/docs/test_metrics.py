"""Names, units and meanings of all metrics."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "hack"))

from reference.metrics import ADDED, UNUSUAL, Described, described

ALL = [item for metrics in described().values() for item in metrics]
SPECIFIED = (
    *("agent_rl_trajectories_collected_total", "agent_rl_trajectory_reward", "agent_rl_training_jobs_total"),
    *("agent_rl_training_duration_seconds", "agent_rl_model_reward_mean", "agent_rl_model_error_rate"),
    *("average_reward", "task_success_rate", "learning_efficiency", "memory_utilization", "training_throughput"),
    *("memory_latency", "model_convergence", "resource_utilization"),
)


def test_what_the_specification_names_is_exported_under_its_name_and_once() -> None:
    names = [item.name for item in ALL]
    assert [name for name in SPECIFIED if names.count(name) != 1] == []


def test_names_follow_the_conventions_or_stand_on_the_list_with_a_reason() -> None:
    assert [item.name for item in ALL if _odd(item) and item.name not in UNUSUAL] == []
    assert set(UNUSUAL) <= {item.name for item in ALL}, "nothing stands on the list that is not exported"


def _odd(item: Described) -> bool:
    prefixed = item.name.startswith(("learnloop_", "agent_rl_"))
    foreign = re.search(r"_(milliseconds|ms|minutes|hours|kilobytes|megabytes|percent|percentage)(_|$)", item.name)
    counter = item.name.endswith("_total") == (item.type == "counter")
    return not (prefixed and counter and not foreign and re.fullmatch(r"[a-z][a-z0-9_]*", item.name))


def test_every_metric_says_what_it_means() -> None:
    assert [item.name for item in ALL if len(item.meaning.split()) < 3] == []


def test_no_metric_has_a_label_that_prometheus_would_overwrite_but_the_namespace() -> None:
    taken = {(item.name, label) for item in ALL for label in item.labels if label in set(ADDED) - {"namespace"}}
    assert taken == set()
