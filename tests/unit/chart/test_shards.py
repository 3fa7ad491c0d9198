"""`operator.shards`: each has a Deployment and knows its part, and one alone is what it always was."""

import pytest

from learnloop_operator.adapters import settings
from learnloop_operator.core.coordination.shards import Shard

from .conftest import Rejected, Render

OPERATOR = {"app.kubernetes.io/component": "operator"}


def test_each_shard_has_a_deployment_that_knows_its_part(render: Render) -> None:
    release = render({"operator": {"shards": 3, "replicas": 2}})
    names = ["learnloop-operator", "learnloop-operator-1", "learnloop-operator-2"]
    for index, name in enumerate(names):
        environment = {key: value for key, value in release.environment(name).items() if isinstance(value, str)}
        assert settings.from_environment(environment).shard == Shard(index, 3)
        assert environment["LEARNLOOP_LEASE_NAME"] == "learnloop-operator", "of the installation, the same for all"
        spec = release.one("Deployment", name)["spec"]
        assert spec["replicas"] == 2
        assert spec["selector"]["matchLabels"].get("learnloop.dev/shard") == (str(index) if index else None)
        labels = spec["template"]["metadata"]["labels"]
        assert labels.items() >= {**spec["selector"]["matchLabels"], **OPERATOR}.items(), "policies select all of them"
        assert spec["template"]["spec"]["serviceAccountName"] == "learnloop-operator"


def test_one_alone_has_no_shard(render: Render) -> None:
    (operator,) = [item for item in render().of("Deployment") if "operator" in item["metadata"]["name"]]
    assert "LEARNLOOP_SHARD" not in render().environment(operator["metadata"]["name"])
    assert "learnloop.dev/shard" not in str(operator)


def test_limits_of_all_training_take_one_operator(render: Render) -> None:
    limited = {"trainer": {"quotas": {"cluster": {"runs": 3}}}}
    render(limited)
    with pytest.raises(Rejected, match=r"limit namespaces, or set operator\.shards to 1"):
        render(limited | {"operator": {"shards": 2}})
