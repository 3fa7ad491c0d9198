"""CPU quotas of both cgroup versions."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from learnloop_trainer.floating_point import settle
from learnloop_trainer.thread_limits import budget, cpu_quota


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_version_2_quota_is_read_and_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/container\n",
        "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
    }
    assert cpu_quota(tree(tmp_path, files)) == 1.5


@pytest.mark.parametrize("text", ["max 100000", "", "-1", "garbage in here", "100000 0"])
def test_no_quota_or_nonsense_means_no_limit(tmp_path: Path, text: str) -> None:
    files = {"proc/self/cgroup": "0::/../escape\nbroken", "sys/fs/cgroup/cpu.max": text}
    assert cpu_quota(tree(tmp_path, files)) == math.inf


def test_small_networks_get_one_thread_and_large_ones_never_more_than_the_quota() -> None:
    assert budget(64, math.inf, 16) == 1
    assert budget(2048, 2.5, 16) == 2
    assert budget(2048, 0.5, 16) == 1
    assert budget(2048, math.inf, 4) == 4


def test_the_variables_are_bound_before_numpy_is_imported() -> None:
    code = (
        "import sys, learnloop_trainer.__main__ as rank, learnloop_trainer.thread_limits as limits\n"
        "limits.bound = lambda environ: sys.exit('numpy' in sys.modules)\n"
        "sys.exit(3 if rank.main() is not None else 4)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_a_rank_computes_without_denormal_numbers() -> None:
    smallest = torch.full((64,), torch.finfo(torch.float32).tiny)
    try:
        settle(1)
        assert not (smallest * 0.5).any()
    finally:
        torch.set_flush_denormal(False)
    assert (smallest * 0.5).all()
