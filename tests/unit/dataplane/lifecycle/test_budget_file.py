"""The file of agents' budgets: read again at each look, and never the reason why more is forgotten."""

import os
from pathlib import Path

import pytest

from learnloop_api.wire.memory_budget import BUDGETS_ROOM, AgentBudgets, AgentMemorySettings
from learnloop_dataplane.lifecycle.forgetting import BudgetFile
from learnloop_dataplane.metrics import Metrics

GOOD = AgentBudgets(namespace="ns", agents={"a": AgentMemorySettings(memories=3)}).model_dump_json(exclude_none=True)


def refused(metrics: Metrics) -> int:
    return int(metrics.registry.get_sample_value("learnloop_memory_budgets_refused_total") or 0)


async def test_what_the_file_says_now_holds_for_its_namespace_alone(tmp_path: Path) -> None:
    metrics, path = Metrics(), tmp_path / "budgets.json"
    file = BudgetFile(path, metrics)
    path.write_text(GOOD)
    assert not file.of("ns"), "before the first look"
    await file.look()
    assert file.of("ns") == {"a": AgentMemorySettings(memories=3)}
    assert not file.of("other")
    path.write_text('{"namespace": "ns", "agents": {}}')
    await file.look()
    assert not file.of("ns")
    assert refused(metrics) == 0


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"", id="empty"),
        pytest.param(GOOD[:-2].encode(), id="cut off"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[]", id="another shape"),
        pytest.param(b'{"namespace": "ns", "agents": {"a": {"memories": -1}}}', id="no number of memories"),
        pytest.param(b'{"namespace": "ns", "agents": {"a": {"memories": "1"}}}', id="a text for a number"),
        pytest.param(b'{"namespace": "ns", "agents": {"A_": {"memories": 1}}}', id="no name"),
        pytest.param(b'{"namespace": "ns", "agents": {}, "more": 1}', id="a field of another version"),
        pytest.param(GOOD.encode() + b" " * BUDGETS_ROOM, id="too long"),
    ],
)
async def test_a_file_that_is_wrong_is_counted_told_once_and_changes_nothing(broken, tmp_path, caplog):
    metrics, path = Metrics(), tmp_path / "budgets.json"
    file = BudgetFile(path, metrics)
    path.write_text(GOOD)
    await file.look()
    path.unlink()
    if broken is not None:
        path.write_bytes(broken)
    for _ in range(3):
        await file.look()
    assert file.of("ns") == {"a": AgentMemorySettings(memories=3)}
    assert refused(metrics) == 3
    assert len([line for line in caplog.messages if "the last valid ones hold" in line]) == 1
    path.write_text(GOOD.replace("3", "4"))
    await file.look()
    assert file.of("ns") == {"a": AgentMemorySettings(memories=4)}
    assert refused(metrics) == 3


async def test_a_file_replaced_as_the_kubelet_does_it_is_read_anew(tmp_path: Path) -> None:
    file = BudgetFile(tmp_path / "budgets.json", Metrics())
    (tmp_path / "budgets.json").symlink_to("..data/budgets.json")
    for version, memories in (("one", 3), ("two", 5)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "budgets.json").write_text(GOOD.replace("3", str(memories)))
        (tmp_path / "..next").symlink_to(version)
        os.replace(tmp_path / "..next", tmp_path / "..data")
        await file.look()
        assert file.of("ns") == {"a": AgentMemorySettings(memories=memories)}
