"""The demo's view of the cluster, by the socket of this machine's API server and without kubectl."""

import json
from pathlib import Path

import yaml

from demo.api import TIMEOUT_SECONDS, Api, Json
from demo.narrator import StoryFailedError
from demo.settings import Settings
from demo.waiting import until
from learnloop_operator.cli.cluster import ApiSocket, whole
from learnloop_operator.cli.objects import NoAnswerError

PLACES = {
    "learningagent": "apis/learnloop.dev/v1alpha1/namespaces/{}/learningagents",
    "rewardpolicy": "apis/learnloop.dev/v1alpha1/namespaces/{}/rewardpolicies",
    "trainingjob": "apis/learnloop.dev/v1alpha1/namespaces/{}/trainingjobs",
    "modeldeployment": "apis/learnloop.dev/v1alpha1/namespaces/{}/modeldeployments",
    "job": "apis/batch/v1/namespaces/{}/jobs",
    "configmap": "api/v1/namespaces/{}/configmaps",
    "deployment": "apis/apps/v1/namespaces/{}/deployments",
}
JOB_SECONDS = 120.0
LONGEST = 200
"""Steps of an episode: a canary at 10 % waits for the episodes of all."""


def small_quickstart(settings: Settings) -> str:
    """The quickstart in less time: one rank, which one machine has, fewer and shorter episodes, and a shorter guard."""
    policy, agent = yaml.safe_load_all(settings.quickstart.read_text())
    policy["spec"]["components"][0]["scale"] = LONGEST
    agent["spec"]["task"]["environment"]["maxStepsPerEpisode"] = LONGEST
    agent["spec"]["training"]["template"] |= {"workers": 0, "totalSteps": 60_000, "gates": {"minReturn": 0.8 * LONGEST}}
    rollout, analysis = (agent["spec"]["deployment"]["template"][part] for part in ("rollout", "analysis"))
    rollout["keepForSeconds"] = 5
    analysis["metrics"][0]["returnRange"]["highest"] = LONGEST
    return yaml.safe_dump_all([policy, agent])


class LocalApi(Api):
    """The calls of kubectl that the story makes, and no others."""

    def __init__(self, path: Path) -> None:
        super().__init__("", [])
        self._socket = ApiSocket(str(path))

    def trainer_image(self) -> str:
        return "learnloop.local/trainer"

    def text(self, path: str) -> str | None:
        status, body = self._ask("GET", path)
        return body if status < 400 else None

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        verb, _, namespace, *rest = arguments
        match verb, rest:
            case "apply", ["-f", file]:
                bodies = yaml.safe_load_all(Path(file).read_text() if stdin is None else stdin)
                return "\n".join(self._apply(namespace, body) for body in bodies)
            case "patch", [kind, name, "--type=merge", "-p", patch]:
                return self._write("PATCH", kind, namespace, name, json.loads(patch), "application/merge-patch+json")
            case "delete", [kind, name, *_]:
                status, _ = self._ask("DELETE", self._place(kind, namespace, name))
                return f"{kind} {name} {'deleted' if status < 400 else 'is not there'}"
            case "wait", [*_, what]:
                return self._wait(namespace, what.partition("/")[2])
            case "logs", [what]:
                pod = next(iter(self._pods_of(namespace, what.partition("/")[2])))
                return self.text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log") or ""
            case "get", [plurals]:
                return "\n".join(self._lines(namespace, plurals.split(",")))
        raise StoryFailedError(f"{verb} {' '.join(rest)}: this machine's story asks for no such thing")

    def _apply(self, namespace: str, body: Json) -> str:
        kind, name = body["kind"].lower(), body["metadata"]["name"]
        query = "application/apply-patch+yaml"
        self._write("PATCH", kind, namespace, f"{name}?fieldManager=make-try&force=true", body, query)
        return f"{kind}/{name} applied"

    def _write(self, method: str, kind: str, namespace: str, name: str, body: Json, form: str) -> str:
        status, text = self._ask(method, self._place(kind, namespace, name), body, form)
        if status >= 400:
            raise StoryFailedError(f"{kind} {name}: {json.loads(text).get('message', text)}")
        return f"{kind}/{name} patched"

    def _wait(self, namespace: str, job: str) -> str:
        def complete() -> str | None:
            status = (self.get(self._place("job", namespace, job)) or {}).get("status") or {}
            if any(item["type"] == "Complete" and item["status"] == "True" for item in status.get("conditions", [])):
                return f"job/{job} condition met"
            return None

        return until(f"the end of job {job}", complete, JOB_SECONDS, every=0.2)

    def _pods_of(self, namespace: str, owner: str) -> list[str]:
        items = (self.get(f"/api/v1/namespaces/{namespace}/pods") or {}).get("items", [])
        return [pod["metadata"]["name"] for pod in items if pod["metadata"]["ownerReferences"][0]["name"] == owner]

    def _lines(self, namespace: str, plurals: list[str]) -> list[str]:
        lines = [f"{'NAME':42} {'PHASE':12} WHY"]
        for plural in plurals:
            for item in (self.custom(namespace, plural) or {}).get("items", []):
                status = item.get("status") or {}
                named = f"{item['kind'].lower()}/{item['metadata']['name']}"
                lines.append(f"{named:42} {status.get('phase', ''):12} {status.get('brief', '')}")
        return lines

    def _place(self, kind: str, namespace: str, name: str) -> str:
        return f"/{PLACES[kind].format(namespace)}/{name}"

    def _ask(self, method: str, path: str, body: Json | None = None, form: str = "") -> tuple[int, str]:
        headers = {"Content-Type": form} if form else {}
        try:
            return whole(self._socket.open(method, path, {}, headers, body, TIMEOUT_SECONDS))
        except NoAnswerError as error:
            return 503, str(error)
