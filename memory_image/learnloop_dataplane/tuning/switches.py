"""The parts of the data plane's tuning that LEARNLOOP_TUNING_OFF switches off."""

from learnloop_api.tuning_switches import Switches

SWITCHES = Switches(frozenset({"garbage-collection", "memory-allocator", "single-write-responses", "unused-libraries"}))
