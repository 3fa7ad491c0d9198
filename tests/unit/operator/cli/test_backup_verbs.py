"""`kubectl learnloop backup` and `restore`: what they start, in which order, and what they leave when it fails."""

from collections.abc import Mapping
from typing import Any

import pytest

from learnloop_operator.cli.objects import CommandError
from testing.command_line import typed


class Installation:
    """A cluster with one; writes down what is asked of it."""

    namespace = "team-a"

    def __init__(self, problem: str = "", replicas: int = 2) -> None:
        self.problem, self.replicas = problem, replicas
        self.asked: list[Any] = []

    def workloads(self, namespace: str) -> "Installation":
        self.asked.append(("in", namespace))
        return self

    def start(self, cron_job: str, variables: Mapping[str, str]) -> str:
        self.asked.append(("start", cron_job, dict(variables)))
        return f"{cron_job}-1"

    def end(self, job: str, seconds: float) -> str:
        self.asked.append(("end", job))
        if self.problem:
            raise CommandError(self.problem)
        return '{"backup": "learnloop-1"}'

    def scale(self, deployment: str, replicas: int, seconds: float) -> int:
        self.asked.append(("scale", deployment, replicas))
        before, self.replicas = self.replicas, replicas
        return before


def said(verb: str, cluster: Installation, *arguments: str) -> str:
    return typed(cluster, verb, *arguments)


def test_a_backup_is_a_job_of_the_charts_cron_job() -> None:
    cluster = Installation()
    assert said("backup", cluster) == '{"backup": "learnloop-1"}'
    assert cluster.asked == [
        ("in", "learnloop-system"),
        ("start", "learnloop-backup", {}),
        ("end", "learnloop-backup-1"),
    ]


def test_a_restore_finds_the_data_plane_stopped_and_starts_it_again() -> None:
    cluster = Installation()
    said("restore", cluster, "learnloop-7", "--yes", "--release", "own", "--release-namespace", "there")
    assert cluster.asked == [
        ("in", "there"),
        ("scale", "own-data", 0),
        ("start", "own-restore", {"BACKUP": "learnloop-7"}),
        ("end", "own-restore-1"),
        ("scale", "own-data", 2),
    ]


def test_after_a_restore_that_failed_nobody_serves_half_of_it() -> None:
    cluster = Installation("database.dump is not what was written")
    with pytest.raises(CommandError, match=r"not what was written; Deployment learnloop-data stays at 0 .* to 2"):
        said("restore", cluster, "--yes")
    assert cluster.replicas == 0


def test_a_restore_is_confirmed() -> None:
    with pytest.raises(CommandError, match="say so with --yes"):
        said("restore", Installation())
