"""Operator processes that die by SIGKILL at writes of a rollout; `make crash-sweep KILLS=12` takes more of them."""

from collections import defaultdict
from typing import Any

import pytest

from testing.operators.process_kills import compare
from testing.servers.otlp_receiver import Receiver

KILLS = 3


@pytest.mark.parametrize("mode", ["service", "gateway"])
async def test_a_rollout_survives_processes_that_are_killed_at_its_writes(api_server, tmp_path, mode, monkeypatch):
    receiver = Receiver().begin()
    monkeypatch.setenv("LEARNLOOP_TRACES_ENDPOINT", receiver.url)
    result, different = await compare(api_server, tmp_path, KILLS, every=4, mode=mode)
    assert not different
    assert len(result.killed_at) == KILLS, result.killed_at
    assert result.codes == [-9] * KILLS
    assert result.generations == sorted(set(result.generations)), "a routing table came back"
    receiver.shutdown()
    check_traces(receiver.spans)


def check_traces(spans: list[dict]) -> None:
    """Of the two rollouts, of which one was killed again and again: the spans of all leaders belong to one trace each.

    A process that is killed loses the spans of its last moment.
    """
    traces = defaultdict[str, list[dict[str, Any]]](list)
    for span in spans:
        traces[span["trace"]].append(span)
    assert len(traces) == 2
    for trace in traces.values():
        (root,) = {span["parent"] for span in trace if span["parent"]}
        assert {span["id"] for span in trace if not span["parent"]} <= {root}
    whole = [span for trace in traces.values() for span in trace if not span["parent"]]
    assert whole
    assert {span["attributes"]["cicd.pipeline.result"] for span in whole} == {"success"}
    assert any("Promoted" in {span["name"] for span in trace} for trace in traces.values())
