"""The data plane without its tuning: everything works, only dearer."""

import os
import subprocess
import sys

import pytest

from learnloop_api.tuning_switches import VARIABLE
from learnloop_dataplane.api.http.head_deadlines import protocol
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.tuning.single_write_responses import SingleWrites
from learnloop_dataplane.tuning.switches import SWITCHES

WITHOUT_TUNING = """
import asyncio, gc

from learnloop_dataplane.api.http.head_deadlines import protocol
from learnloop_dataplane.tuning.memory_allocator import keep_small, settle
from learnloop_dataplane.tuning.single_write_responses import SingleWrites

threshold = gc.get_threshold()
settle()
assert gc.get_threshold() == threshold and gc.get_freeze_count() == 0
asyncio.run(asyncio.wait_for(keep_small(), 10))
assert not issubclass(protocol(), SingleWrites)
"""


def test_the_data_plane_asks_nothing_of_the_runtime_with_all_of_its_tuning_off() -> None:
    environment = {**os.environ, VARIABLE: "all", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", WITHOUT_TUNING], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_part_has_a_switch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in SWITCHES.parts:
        monkeypatch.setenv(VARIABLE, part)
        assert {other for other in SWITCHES.parts if not SWITCHES.is_on(other)} == {part}
        assert issubclass(protocol(), SingleWrites) == (part != "single-write-responses")


def test_a_part_that_does_not_exist_is_refused_at_start() -> None:
    environment = {"LEARNLOOP_DSN": "postgresql://u:p@h/d", VARIABLE: "text-packing"}
    with pytest.raises(ConfigError, match="LEARNLOOP_TUNING_OFF names text-packing: set all, or some of garbage-"):
        Config.from_env(environment)
