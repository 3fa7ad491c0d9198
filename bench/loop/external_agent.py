"""The process of the external agent: a pod that learnloop did not make, which acts by the served policy and records by
the SDK. Image, addresses and token are as those of an actor in the same installation."""

import copy
from typing import Any

NAME = "clerk"
OWN = {
    "LEARNLOOP_ACTOR_AGENT": NAME,
    "LEARNLOOP_ACTOR_ENVIRONMENT": "CartPole-v1",
    "LEARNLOOP_ACTOR_SUCCESS_RETURN": "195",
    "LEARNLOOP_ACTOR_MAX_STEPS_PER_SECOND": "1000",
}
CODE = "LEARNLOOP_ENVIRONMENT_DIRECTORY"
ENDPOINT = "LEARNLOOP_ENDPOINT"
LABELS = {"app": "bench-clerk"}


def deployment(actor: dict[str, Any], of: str) -> dict[str, Any]:
    """A Deployment of one such pod.

    Args:
        actor: the Deployment that learnloop made for the actors of agent `of`.
    """
    pod = copy.deepcopy(actor["spec"]["template"]["spec"])
    (container,) = pod["containers"]
    given = {item["name"]: item for item in container["env"]}
    code = given.pop(CODE, {}).get("value")
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["mountPath"] != code]
    mounted = {one["name"] for one in container["volumeMounts"]}
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] in mounted]
    endpoint = str(given[ENDPOINT]["value"]).replace(f"//{of}.", f"//{NAME}.", 1)
    given |= {name: {"name": name, "value": value} for name, value in {**OWN, ENDPOINT: endpoint}.items()}
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
