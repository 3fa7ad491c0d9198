"""The admission policy that makes a decision's name proof: where it is rendered, and that the operator knows."""

import json

import pytest

from learnloop_api.names import VERBS, verb_annotation

from .conftest import Rejected, Render

POLICY = "learnloop-system-learnloop-decisions"
VERIFIED = "LEARNLOOP_NAMES_ARE_VERIFIED"


def test_the_policy_covers_every_verb_and_the_operator_calls_names_verified(render: Render) -> None:
    release = render({"decisions": {"verifyNames": "always"}})
    text = str(release.one("ValidatingAdmissionPolicy", POLICY)["spec"]["variables"])
    assert verb_annotation("") in text
    assert all(f"'{verb}'" in text for verb in (*VERBS, "train"))
    assert release.one("ValidatingAdmissionPolicyBinding", POLICY)["spec"]["validationActions"] == ["Deny"]
    assert release.environment("learnloop-operator")[VERIFIED] == "true"


@pytest.mark.parametrize("values", [{"decisions": {"verifyNames": "never"}}, {"watchNamespaces": ["team-a"]}])
def test_without_the_policy_nothing_says_that_names_are_verified(render: Render, values: dict[str, object]) -> None:
    release = render(values)
    policies = release.of("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    assert POLICY not in {item["metadata"]["name"] for item in policies}
    assert VERIFIED not in release.environment("learnloop-operator")


def test_four_eyes_come_with_a_policy_and_are_told_to_the_operator(render: Render) -> None:
    release = render({"decisions": {"verifyNames": "always"}, "approvals": {"fourEyes": True}})
    policy = release.one("ValidatingAdmissionPolicy", "learnloop-system-learnloop-four-eyes")
    assert "learnloop.dev/author" in str(policy["spec"])
    assert release.one("ValidatingAdmissionPolicyBinding", "learnloop-system-learnloop-four-eyes")
    assert release.environment("learnloop-operator")["LEARNLOOP_FOUR_EYES"] == "true"
    assert "LEARNLOOP_FOUR_EYES" not in render({}).environment("learnloop-operator")


def test_four_eyes_without_verified_names_are_refused(render: Render) -> None:
    with pytest.raises(Rejected, match=r"approvals\.fourEyes: true takes names that the API server has checked"):
        render({"decisions": {"verifyNames": "never"}, "approvals": {"fourEyes": True}})


def test_the_operator_knows_the_lists_of_what_pods_may_have(render: Render) -> None:
    rules = json.loads(render({"authors": {"images": ["a/"]}}).environment("learnloop-operator")["LEARNLOOP_POD_RULES"])
    assert rules["images"] == ["a/"]
    assert "hostPath" not in rules["volumeKinds"]
    assert set(rules) == {"images", "serviceAccounts", "volumeKinds", "envSources"}


def test_the_operator_knows_the_images_of_model_servers(render: Render) -> None:
    own = {"modelServers": {"vllm": {"image": {"repository": "team/vllm", "tag": "1"}}}}
    environment = render({"serving": own, "global": {"imageRegistry": "r.example"}}).environment("learnloop-operator")
    assert environment["LEARNLOOP_VLLM_IMAGE"] == "r.example/team/vllm:1"
    assert environment["LEARNLOOP_LLAMA_CPP_IMAGE"] == "r.example/ggml-org/llama.cpp:server-b9994"
