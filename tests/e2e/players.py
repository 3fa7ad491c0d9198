"""Agents with live traffic on a ModelDeployment named policy."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from world import World

PLAYER = """
import collections, json, random, sys, time, urllib.request

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)

opened, end, chances = collections.Counter(), time.monotonic() + float(sys.argv[1]), json.loads(sys.argv[2])
while time.monotonic() < end:
    episode = post("http://policy:8080/v1/episodes", {})
    opened[episode["revision"]] += 1
    at = episode["url"] + "/v1/episodes/" + episode["episode_id"]
    for _ in range(4):
        post(at + "/act", {"observation": [0, 0, 0, 0]})
    won = random.random() < chances.get(episode["revision"], 1.0)
    post(at + "/end", {"status": "completed", "episode_return": 4.0, "length": 4, "success": won})
    time.sleep(0.02)
print(json.dumps(opened))
"""


@contextmanager
def players(
    world: World, namespace: str, pod: str, chances: Mapping[str, float] | None = None
) -> Iterator[Counter[str]]:
    """Agents that play from a pod of the cluster for the time of the block; the revisions their episodes got.

    `chances`: share of an arm's episodes that succeed, by revision; all of them where it is left out."""
    opened: Counter[str] = Counter()
    told = json.dumps(chances or {})
    stop = threading.Event()

    def play() -> None:
        while not stop.is_set():
            try:
                out = world.api.run("exec", "-n", namespace, pod, "--", "python3", "-c", PLAYER, "3", told)
            except subprocess.CalledProcessError:
                # A new Service has no name for a moment, and at the end the pod goes with its arm: agents try again.
                stop.wait(0.5)
                continue
            opened.update(json.loads(out.strip().splitlines()[-1]))

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield opened
    finally:
        stop.set()
        thread.join()
