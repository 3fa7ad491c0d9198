"""The parts of the operator's tuning that LEARNLOOP_TUNING_OFF switches off."""

from learnloop_api.tuning_switches import Switches

SWITCHES = Switches(frozenset({"value-objects", "text-packing", "stateless-kopf", "garbage-collection"}))
