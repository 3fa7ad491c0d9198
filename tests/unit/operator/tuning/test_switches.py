"""The operator without its tuning: everything works, only dearer."""

import os
import subprocess
import sys

import kopf
import pytest

from learnloop_api.tuning_switches import VARIABLE
from learnloop_operator.adapters.settings import SettingsError, from_environment
from learnloop_operator.tuning.stateless_kopf import NoDifferences, without_storages
from learnloop_operator.tuning.switches import SWITCHES
from learnloop_operator.tuning.text_packing import Packer, Unpacked, packer

WITHOUT_TUNING = """
import gc, sys
from dataclasses import FrozenInstanceError, replace

from learnloop_operator.adapters.kube.kinds import DEPLOYMENT
from learnloop_operator.adapters.kube.object_cache import ObjectCache
from learnloop_operator.core.plan import Notice
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.controllers import operator_process
from learnloop_operator.tuning.garbage_collection import settle
from testing.simulation.two_arm_world import World

notice = Notice("Normal", "Reason", "text")
assert replace(notice) == notice and hash(replace(notice)) == hash(notice)
try:
    Counts(1.0, 1.0).n = 2.0
    sys.exit("a value was changed")
except FrozenInstanceError:
    pass
threshold = gc.get_threshold()
settle()
assert gc.get_threshold() == threshold
assert operator_process._memories() is None
assert "learnloop_operator.tuning.kopf_memories" not in sys.modules
cache = ObjectCache([DEPLOYMENT])
body = {"metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "1"}, "spec": {"replicas": 2}}
assert cache.put(DEPLOYMENT, body)
assert cache.get(DEPLOYMENT, "ns", "a")["spec"] == {"replicas": 2}
threshold = {"name": "success", "type": "success", "min": 0.7}
assert World(1, 0.3, threshold).run(300) == "RolledBack"
"""


def test_the_operator_works_with_all_of_its_tuning_off() -> None:
    environment = {**os.environ, VARIABLE: "all", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", WITHOUT_TUNING], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_part_has_a_switch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in SWITCHES.parts:
        monkeypatch.setenv(VARIABLE, part)
        assert {other for other in SWITCHES.parts if not SWITCHES.is_on(other)} == {part}
    monkeypatch.setenv(VARIABLE, "text-packing, stateless-kopf")
    assert isinstance(packer(), Unpacked)
    settings = kopf.OperatorSettings()
    without_storages(settings)
    assert not isinstance(settings.persistence.diffbase_storage, NoDifferences)
    monkeypatch.delenv(VARIABLE)
    assert isinstance(packer(), Packer)
    without_storages(settings)
    assert isinstance(settings.persistence.diffbase_storage, NoDifferences)


def test_a_part_that_does_not_exist_is_refused_at_start() -> None:
    assert SWITCHES.off("") == frozenset()
    with pytest.raises(SettingsError, match="LEARNLOOP_TUNING_OFF names heap: set all, or some of garbage-collection"):
        from_environment({VARIABLE: "heap"})
