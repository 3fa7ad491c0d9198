"""Bodies that are made to use up memory and processor time are refused at a price that a good body costs as well."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from learnloop_api import names
from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.nats.event_outbox import invalid
from learnloop_dataplane.strict_json import EXACT, MAX_PARTS, READ_AGAIN, StrictReader, _number

READER = StrictReader(Trajectory)
SIZE = 2**20


def filled(before: bytes, item: bytes, after: bytes) -> bytes:
    return before + item * ((SIZE - len(before)) // len(item)) + after


BOMBS = {
    "numbers that become 309 digits": filled(b'{"agent": 3, "metadata": {"a": [', b"1e308,", b"1]}}"),
    "empty objects": filled(b'{"steps": [', b"{},", b"{}]}"),
    "empty lists": filled(b'{"metadata": {"a": [', b"[],", b"[]]}}"),
    "keys that no schema knows": b"{" + b",".join(b'"k%d":1' % number for number in range(MAX_PARTS)) + b"}",
    "steps of keys that no schema knows": filled(b'{"steps": [', b'{"a":1,"b":1,"c":1},', b"{}]}"),
    "lists in lists": b'{"agent": ' + b"[" * SIZE + b"]" * SIZE + b"}",
    "one integer": b'{"agent": ' + b"9" * SIZE + b"}",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_in_few_words(bomb: str) -> None:
    with pytest.raises(ValidationError) as refused:
        READER.read(BOMBS[bomb])
    faults = refused.value.errors(include_url=False)
    assert len(faults) <= 1000
    reason = invalid("red", names.SUBJECT_TRAJECTORY, refused.value).reason
    assert len(reason) <= 1024


_PEAK = """
import resource, sys
from pathlib import Path
from pydantic import ValidationError
from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.strict_json import StrictReader
reader, before = StrictReader(Trajectory), 0
for file in sys.argv[1:]:
    body = Path(file).read_bytes()
    before = before or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        reader.read(body)
    except ValidationError:
        pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_bombs_of_eight_mebibytes_take_bounded_memory(tmp_path: Path) -> None:
    """Read twice, the first takes 4 GiB; a copy of the last for each field that it lacks takes 250 MiB."""
    files = []
    for number, item in enumerate((b"1e308,", b"{},", b'{"a":1,"b":1,"c":1},')):
        file = tmp_path / str(number)
        file.write_bytes(b'{"agent": 3, "metadata": {"a": [' + item * (7 * 2**20 // len(item)) + b"1]}}")
        files.append(str(file))
    files.append(str(lacking := tmp_path / "lacking"))
    lacking.write_bytes(b'{"steps": [' + b"0.1234567," * (7 * 2**20 // 10) + b"1]}")
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, *files], capture_output=True, text=True, timeout=240, check=True
    )
    assert int(done.stdout) < 200, f"{done.stdout} MiB"


@pytest.mark.parametrize(("text", "exact"), [("1.0", True), ("9007199254740991.0", True), (f"{EXACT}.0", False)])
def test_a_whole_number_is_an_integer_as_long_as_it_is_exact(text: str, exact: bool) -> None:
    assert isinstance(_number(text), int) is exact


def test_a_large_body_is_not_read_twice() -> None:
    """1.0 for an integer is taken in a small body; a large one has to write 1."""

    class Sized(BaseModel):
        count: int
        text: str

    reader = StrictReader(Sized)
    assert reader.read(b'{"count": 1.0, "text": ""}').count == 1
    large = b'{"count": 1%s, "text": "' + b"x" * READ_AGAIN + b'"}'
    assert reader.read(large.replace(b"%s", b"")).count == 1
    with pytest.raises(ValidationError, match="count"):
        reader.read(large.replace(b"%s", b".0"))
