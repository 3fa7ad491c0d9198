"""Agents with live traffic on a ModelDeployment named policy, at its own address or at a gateway's."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from testing.real_cluster.cluster_actions import Json, Rig

PLAYER = """
import collections, json, os, random, ssl, sys, time, urllib.error, urllib.request

TOKEN, AUTHORITIES = "/var/run/secrets/learnloop.dev/token", "/var/run/secrets/learnloop.dev/ca.crt"
trusted = ssl.create_default_context(cafile=AUTHORITIES) if os.path.exists(AUTHORITIES) else None
said = json.loads(sys.argv[1])
opened, inferred, gave_up, mixed = collections.Counter(), collections.Counter(), collections.Counter(), 0

def post(url, body, arm=None):
    headers = {"content-type": "application/json"}
    headers |= {"host": said["host"]} if said["host"] else {}
    headers |= {"x-learnloop-arm": arm} if arm else {}
    headers |= {"authorization": "Bearer " + open(TOKEN).read().strip()} if os.path.exists(TOKEN) else {}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10, context=trusted) as answer:
        return json.load(answer)

def play():
    global mixed
    episode = post(said["url"] + "/v1/episodes", {})
    revision = episode["revision"]
    opened[revision] += 1
    at, arm = (episode["url"] or said["url"]) + "/v1/episodes/" + episode["episode_id"], None
    if episode["mode"] == "gateway":
        arm = revision
    for _ in range(said["steps"]):
        mixed += post(at + "/act", {"observation": [said["number"]] * 4}, arm)["revision"] != revision
    won = random.random() < said["chances"].get(revision, 1.0)
    post(at + "/end", {"status": "completed", "episode_return": 4.0, "length": 4, "success": won}, arm)

def infer():
    tensor = {"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": [said["number"]] * 4}
    inferred[post(said["url"] + "/v2/models/policy/infer", {"inputs": [tensor]})["model_version"]] += 1

end, played = time.monotonic() + said["seconds"], 0
while time.monotonic() < end and played < said["episodes"]:
    played += 1
    try:
        play()
        if said["infers"]:
            infer()
    except urllib.error.HTTPError as error:
        gave_up[f"{error.code} {error.read(200).decode(errors='replace')} at {error.url.split('/', 3)[2]}"] += 1
    except OSError as error:
        gave_up[str(error)] += 1
    time.sleep(said["rest"])
print(json.dumps({"opened": opened, "inferred": inferred, "gave_up": gave_up, "mixed": mixed}))
"""


@dataclass(frozen=True)
class Door:
    """The door for agents: an address inside the cluster, and the host name that a gateway knows the policy by."""

    url: str = ""
    """Without one it is the Service's, by TLS where the parts speak it."""
    host: str = ""
    routing: Json = field(default_factory=lambda: {"mode": "service"})
    """spec.routing of a ModelDeployment behind it."""


def gateway_door(namespace: str) -> Door:
    """The cluster's gateway, which knows the policies of this namespace by a host name of theirs."""
    host = f"{namespace}.example.com"
    reference = {"name": "gateway", "namespace": "gateway"}
    routing = {"mode": "gateway", "gateway": reference, "hostnames": [host]}
    return Door("http://gateway.gateway.svc", host, routing)


@dataclass
class Played:
    """The agents' view: the revisions of their episodes and of their requests that know no episodes, why they gave up
    and how often, an answer that took ten seconds included, and answers by another arm than the episode's."""

    opened: Counter[str] = field(default_factory=Counter)
    inferred: Counter[str] = field(default_factory=Counter)
    gave_up: Counter[str] = field(default_factory=Counter)
    mixed: int = 0

    @property
    def failed(self) -> int:
        """How often they gave up."""
        return self.gave_up.total()

    def add(self, other: "Played") -> None:
        """Adds another player's observations."""
        self.opened.update(other.opened)
        self.inferred.update(other.inferred)
        self.gave_up.update(other.gave_up)
        self.mixed += other.mixed


@dataclass(frozen=True)
class Habits:
    """How agents play. `chances`: share of an arm's episodes that succeed, by revision; all of them where it is left
    out. `number`: what every observation consists of. `infers`: also ask without an episode, once after each."""

    chances: Mapping[str, float] = field(default_factory=dict)
    number: float = 0.0
    infers: bool = False
    steps: int = 4
    rest: float = 0.02


def play(
    rig: Rig,
    namespace: str,
    pod: str,
    door: Door,
    habits: Habits,
    *,
    seconds: float = 60,
    episodes: int = 1_000_000,
) -> Played:
    """One agent's play from a pod of the cluster, until the time or the episodes are over. CalledProcessError when the
    pod is gone."""
    service = f"{'https' if rig.by_tls else 'http'}://policy.{namespace}.svc:8080"
    order = {**asdict(habits), "url": door.url or service, "host": door.host, "seconds": seconds, "episodes": episodes}
    out = rig.api.run("exec", "-n", namespace, pod, "--", "python3", "-c", PLAYER, json.dumps(order))
    report = json.loads(out.strip().splitlines()[-1])
    return Played(Counter(report["opened"]), Counter(report["inferred"]), Counter(report["gave_up"]), report["mixed"])


@contextmanager
def players(
    rig: Rig, namespace: str, pod: str, habits: Habits | None = None, door: Door | None = None
) -> Iterator[Played]:
    """Agents that play from a pod of the cluster for the time of the block."""
    played = Played()
    stop = threading.Event()

    def again() -> None:
        while not stop.is_set():
            try:
                outcome = play(rig, namespace, pod, door or Door(), habits or Habits(), seconds=3)
            except subprocess.CalledProcessError:
                # A new Service has no name for a moment, and at the end the pod goes with its arm: agents try again.
                stop.wait(0.5)
                continue
            played.add(outcome)

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield played
    finally:
        stop.set()
        thread.join()
