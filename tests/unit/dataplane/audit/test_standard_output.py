"""Each record of the chain is one line of JSON for collectors, and a line never costs a record."""

import io
import json
from datetime import UTC, datetime

from learnloop_dataplane.audit import chain as sealer
from learnloop_dataplane.audit.chain import GENESIS, Entry, Sealed, seal

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def record(seq: int, **detail) -> Sealed:
    return seal(GENESIS, Entry("team-a", seq, NOON, "sa", "model.rolled_back", "model-deployment/x", "done", detail))


def test_a_line_says_what_its_record_says_and_by_which_hash_it_is_found() -> None:
    made = [record(1, revision="r1", verdict="first\nsecond"), record(2)]
    stream = io.StringIO()
    sealer.write(made, stream)
    first, second = stream.getvalue().splitlines()
    line = json.loads(first)
    assert line.pop("hash") == made[0].hash.hex()
    assert line == {
        "app": "learnloop-data",
        "stream": "audit",
        "namespace": "team-a",
        "seq": 1,
        "at": "2026-01-31T12:00:00.000000Z",
        "actor": "sa",
        "action": "model.rolled_back",
        "subject": "model-deployment/x",
        "outcome": "done",
        "detail": {"revision": "r1", "verdict": "first\nsecond"},
    }
    assert json.loads(second)["seq"] == 2


def test_a_record_cannot_pass_for_another_stream_or_add_a_line() -> None:
    stream = io.StringIO()
    sealer.write([record(1, stream="log", app='x"}\n{"stream":"log')], stream)
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["stream"] == "audit"


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_nobody_who_reads_is_no_trouble() -> None:
    sealer.write([record(1)], Gone())
    with io.StringIO() as closed:
        pass
    sealer.write([record(1)], closed)
