"""The built-in suites by name."""

from collections.abc import Callable, Mapping

from learnloop_gates.errors import SuiteError
from learnloop_gates.prompt_files import rows
from learnloop_gates.settings import SuiteSettings
from learnloop_gates.suite import Suite
from learnloop_gates.suites.counterfactual import counterfactual
from learnloop_gates.suites.format import form
from learnloop_gates.suites.injection import injection
from learnloop_gates.suites.leak import leak
from learnloop_gates.suites.policy_replay import is_of_numbers, policy_replay
from learnloop_gates.suites.refusal import over_refusal, refusal
from learnloop_gates.suites.replay import cost, replay
from learnloop_gates.suites.toxicity import toxicity

SUITES: Mapping[str, Callable[[SuiteSettings], Suite]] = {
    "refusal": refusal,
    "over-refusal": over_refusal,
    "toxicity": toxicity,
    "counterfactual": counterfactual,
    "injection": injection,
    "leak": leak,
    "format": form,
    "replay": replay,
    "cost": cost,
}


def suite_of(settings: SuiteSettings) -> tuple[Suite, bool]:
    """The suite, and whether it asks policy servers rather than a language model.

    Raises:
        SuiteError: there is no such suite, or its data is not there.
    """
    if settings.builtin not in SUITES:
        raise SuiteError(f"builtin: {settings.builtin!r} is none of {', '.join(SUITES)}")
    if settings.builtin == "replay" and settings.data:
        found = rows(settings.data)
        if is_of_numbers(found[0]):
            return policy_replay(found), True
    return SUITES[settings.builtin](settings), False
