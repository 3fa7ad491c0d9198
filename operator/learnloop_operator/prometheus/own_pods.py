"""Names of the pods that the operator's own Deployments make: whose series count as an arm's.

Whoever is scraped names its series as it likes, `revision` among the labels. It cannot choose the label with its pod's
name, which Prometheus sets by what Kubernetes told it. A revision's series count when they come from pods of that
revision: another pod of the namespace does not speak for an arm, and one arm's pods do not speak for the other.

Pods that are gone count on, so names are told by their form: the arm's Deployment, a hash of its template, and five
characters. Whoever may make pods of such names may make policy servers, too.
"""

from learnloop_api.wire.routing import arm_name

LONGEST_BASE = 58
"""Characters before the five random ones: Kubernetes cuts longer ones off (apiserver, storage/names/generate.go)."""
LONGEST_HASH = 10
"""Characters of the hash of a Deployment's template, a number of 32 bits in decimal places."""
_RANDOM = "[a-z0-9]{5}"
_REVISION = 8


def own_pods(model_deployment: str, revision: str = "") -> str:
    """A regular expression (RE2) that matches the whole name of each pod of one arm; without `revision`, of all arms.

    Where a ModelDeployment's name is so long that Kubernetes cuts the revision off, less of it is compared.
    """
    name = model_deployment.replace(".", "[.]")
    kept = LONGEST_BASE - len(arm_name(model_deployment, ""))
    if kept < _REVISION:
        begins = arm_name(model_deployment, "")[:LONGEST_BASE].replace(".", "[.]")
        return f"{begins}{_mark(revision, max(0, kept))}{_RANDOM}"
    arm, rest = arm_name(name, _mark(revision, _REVISION)), kept - _REVISION - 1
    if rest > LONGEST_HASH:
        return f"{arm}-[a-z0-9]{{1,{LONGEST_HASH}}}-{_RANDOM}"
    if rest > 0:
        return f"{arm}-([a-z0-9]{{1,{LONGEST_HASH}}}-|[a-z0-9]{{{rest}}}){_RANDOM}"
    return f"{arm}{'-' if rest == 0 else ''}{_RANDOM}"


def _mark(revision: str, characters: int) -> str:
    return revision[:characters] if revision or not characters else f"[0-9a-f]{{{characters}}}"
