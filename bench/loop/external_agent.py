"""The process of the external agent: a pod that learnloop did not make, which acts by the served policy and records by
the SDK. Image, addresses and token are as those of an actor in the same installation."""

import copy
from typing import Any

NAME, OF_MANY = "clerk", "dealer"
"""External agents, and the one whose log grows by many episodes a turn."""
OWN = {
    NAME: {"ENVIRONMENT": "CartPole-v1", "SUCCESS_RETURN": "195", "MAX_STEPS_PER_SECOND": "1000"},
    OF_MANY: {"ENVIRONMENT": "Blackjack-v1", "SUCCESS_RETURN": "1", "MAX_STEPS_PER_SECOND": "100"},
}
CODE = "LEARNLOOP_ENVIRONMENT_DIRECTORY"
ENDPOINT = "LEARNLOOP_ENDPOINT"
LABELS = {"app": "bench-external"}


def deployment(actor: dict[str, Any], of: str, name: str = NAME) -> dict[str, Any]:
    """A Deployment of one such pod.

    Args:
        actor: the Deployment that learnloop made for the actors of agent `of`.
        name: of the external agent.
    """
    pod = copy.deepcopy(actor["spec"]["template"]["spec"])
    (container,) = pod["containers"]
    given = {item["name"]: item for item in container["env"]}
    code = given.pop(CODE, {}).get("value")
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["mountPath"] != code]
    mounted = {one["name"] for one in container["volumeMounts"]}
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] in mounted]
    endpoint = str(given[ENDPOINT]["value"]).replace(f"//{of}.", f"//{name}.", 1)
    options = {"AGENT": name, **OWN[name]}
    own = {ENDPOINT: endpoint} | {f"LEARNLOOP_ACTOR_{option}": value for option, value in options.items()}
    given |= {variable: {"name": variable, "value": value} for variable, value in own.items()}
    container["env"] = list(given.values())
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": LABELS["app"]},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }
