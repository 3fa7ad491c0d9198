"""A memory service of a namespace on a real node: it remembers and keeps tenants apart."""

import json

from learnloop_api.names import memory_audience
from learnloop_operator.memory_services.service_snapshot import DATABASE
from testing.real_cluster.cluster_actions import Json, Rig, learnloop

AGENT, SERVICE = "walker", "team"
PODS = {
    part: f"learnloop.dev/memory-service={SERVICE},app.kubernetes.io/component={part}"
    for part in ("memory-service", "memory-postgres")
}
FACTS = {
    "brake": "the brake of crane seven sticks when it is frozen",
    "valve": "valve twelve opens anticlockwise",
    "door": "the door of hall three needs the blue key",
    "pump": "pump nine is primed by hand",
    "lamp": "the lamp over the gate blinks before it fails",
}
ASK = """
import json, os, ssl, sys, urllib.request
method, path, token, body = json.loads(sys.stdin.read())
headers = {"authorization": "Bearer " + token, "content-type": "application/json"}
data = None if body is None else json.dumps(body).encode()
authorities, scheme, trusted = "/var/run/secrets/learnloop.dev/ca.crt", "http", None
if os.path.exists(authorities):
    scheme, trusted = "https", ssl.create_default_context(cafile=authorities)
    trusted.check_hostname = False  # it is asked by the pod's own address, which no certificate says
asked = urllib.request.Request(scheme + "://127.0.0.1:8080" + path, data, headers, method=method)
with urllib.request.urlopen(asked, timeout=20, context=trusted) as answer:
    print(answer.read().decode())
"""


def _agent() -> Json:
    return learnloop(
        "LearningAgent",
        AGENT,
        {
            "task": {"external": {}, "observations": 4, "actions": 2},
            "rewardPolicyRef": {"name": "any"},
            "memory": {"serviceRef": {"name": SERVICE}},
        },
    )


class Caller:
    """Speaks to the service with the token of a namespace's ServiceAccount, from inside its pod."""

    def __init__(self, rig: Rig, namespace: str, identity: str) -> None:
        self._world = rig
        self._namespace = namespace
        audience = f"--audience={memory_audience(namespace, SERVICE)}"
        self._token = rig.api.run("create", "token", "default", "-n", identity, audience, "--duration=1h").strip()

    def __call__(self, method: str, path: str, **body: object) -> Json:
        pod = serving(self._world, self._namespace)["metadata"]["name"]
        order = json.dumps([method, path, self._token, body or None])
        command = ("exec", "-i", "-n", self._namespace, pod, "--", "python3", "-c", ASK)
        answer: Json = json.loads(self._world.api.run(*command, stdin=order))
        return answer

    def recall(self, context: str) -> list[str]:
        """Its memories of that, best first."""
        answer = self("POST", "/api/v1/memory/retrieve", agent_id=AGENT, context=context, k=3)
        return [memory["content"]["text"] for memory in answer["memories"]]

    def count(self) -> int:
        """How many memories the agent has, as the service lists them."""
        return len(self("GET", f"/api/v1/memory/entries?agent_id={AGENT}")["memories"])


def serving(rig: Rig, namespace: str) -> Json:
    (pod,) = rig.api.pods(namespace, PODS["memory-service"])
    return pod


def _connections(rig: Rig, namespace: str) -> tuple[int, int]:
    """How many come to the database over the network in plain text, and by TLS, as PostgreSQL sees it."""
    (pod,) = rig.api.pods(namespace, PODS["memory-postgres"])
    query = (
        "SELECT count(*) FILTER (WHERE NOT ssl), count(*) FILTER (WHERE ssl) "
        "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_addr IS NOT NULL"
    )
    psql = ("psql", "-U", DATABASE, "-d", DATABASE, "-Atc", query)
    plain, encrypted = rig.api.run("exec", "-n", namespace, pod["metadata"]["name"], "--", *psql).strip().split("|")
    return int(plain), int(encrypted)


def _uids(rig: Rig, namespace: str) -> set[str]:
    """Of the pods that are ready, the database's and the service's."""
    pods = [pod for selector in PODS.values() for pod in rig.api.pods(namespace, selector)]
    return {pod["metadata"]["uid"] for pod in pods if _ready(pod)}


def _ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def test_an_agents_memories_survive_kill_9_and_stay_its_namespaces(rig: Rig, namespace: str) -> None:
    reward = learnloop("RewardPolicy", "any", {"components": [{"name": "solved", "type": "success", "weight": 1}]})
    rig.apply(namespace, learnloop("MemoryService", SERVICE, {"storage": {"size": "1Gi"}}), reward, _agent())
    rig.condition(namespace, "memoryservices", SERVICE, "Ready", "True", seconds=300)
    caller = Caller(rig, namespace, namespace)
    for text in FACTS.values():
        caller("POST", "/api/v1/memory/store", agent_id=AGENT, memory_type="semantic", content={"text": text})
    for word, text in FACTS.items():
        assert caller.recall(f"what about the {word}?")[0] == text
    assert Caller(rig, namespace, "default").recall("the brake of crane seven") == []
    plain, encrypted = _connections(rig, namespace)
    assert (plain == 0 < encrypted) if rig.by_tls else (encrypted == 0 < plain)

    killed = _uids(rig, namespace)
    for selector in PODS.values():
        rig.api.run("delete", "pod", "-n", namespace, "-l", selector, "--grace-period=0", "--force")
    rig.until("both back", lambda: len(_uids(rig, namespace) - killed) == len(PODS), 240)
    rig.condition(namespace, "memoryservices", SERVICE, "Ready", "True", seconds=60)
    assert caller.recall("is the brake frozen?")[0] == FACTS["brake"]
    assert caller.count() == len(FACTS)
