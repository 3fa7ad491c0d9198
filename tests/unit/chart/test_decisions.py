"""The admission policy that makes a decision's name proof: where it is rendered, and that the operator knows."""

import pytest

from learnloop_api.names import VERBS, verb_annotation

from .conftest import Render

POLICY = "learnloop-system-learnloop-decisions"
TOLD = "LEARNLOOP_NAMES_ARE_VERIFIED"


def test_the_policy_covers_every_verb_and_the_operator_calls_names_verified(render: Render) -> None:
    release = render({"decisions": {"verifyNames": "always"}})
    text = str(release.one("ValidatingAdmissionPolicy", POLICY)["spec"]["variables"])
    assert verb_annotation("") in text
    assert all(f"'{verb}'" in text for verb in (*VERBS, "train"))
    assert release.one("ValidatingAdmissionPolicyBinding", POLICY)["spec"]["validationActions"] == ["Deny"]
    assert release.environment("learnloop-operator")[TOLD] == "true"


@pytest.mark.parametrize("values", [{"decisions": {"verifyNames": "never"}}, {"watchNamespaces": ["team-a"]}])
def test_without_the_policy_nothing_says_that_names_are_verified(render: Render, values: dict[str, object]) -> None:
    release = render(values)
    assert not release.of("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    assert TOLD not in release.environment("learnloop-operator")
