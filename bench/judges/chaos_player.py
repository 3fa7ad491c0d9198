"""A user in one pod of the cluster: plays at a policy, and hands each episode in until it is acknowledged.

Its ledger, a line of JSON each: {"at", "why"} of an episode (why: "" when it was answered), {"acknowledged"} of a
trajectory that the data plane took. `lost` as argument prints what is in the ledger and not in the data plane.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TOKEN, AUTHORITIES = Path("/var/run/secrets/learnloop.dev/token"), Path("/var/run/secrets/learnloop.dev/ca.crt")
LEDGER = Path("/tmp/ledger.jsonl")
POLICY, DATA, REST = os.environ.get("POLICY_URL", ""), os.environ.get("LEARNLOOP_DATA_URL", ""), 0.05
NEWEST = 1000
"""Acknowledged trajectories that are looked for; those before them were found at an earlier look."""


def ask(method: str, url: str, body: Any = None) -> Any:
    """The answer's JSON; raises OSError, of which HTTPError is one."""
    trusted = ssl.create_default_context(cafile=str(AUTHORITIES)) if AUTHORITIES.exists() else None
    headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN.read_text().strip()}"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, headers, method=method), timeout=10, context=trusted
    ) as answer:
        return json.loads(answer.read() or b"null")


def play() -> dict[str, Any]:
    """One episode of four steps; the trajectory of it."""
    began = datetime.now(UTC).isoformat()
    episode = ask("POST", f"{POLICY}/v1/episodes", {})
    at = f"{episode['url'] or POLICY}/v1/episodes/{episode['episode_id']}"
    steps = []
    for _ in range(4):
        action = ask("POST", f"{at}/act", {"observation": [0.0] * 4})["action"]
        steps.append({"observation": [0.0] * 4, "action": action, "log_prob": -0.7, "reward": 1.0})
    outcome = {"status": "completed", "episode_return": 4.0, "success": True}
    ask("POST", f"{at}/end", {**outcome, "length": 4})
    ended, name = datetime.now(UTC).isoformat(), episode["episode_id"]
    about = {"trajectory_id": name, "episode_id": name, "agent": "chaos", "task": "chaos", "outcome": outcome}
    return about | {"policy_revision": episode["revision"], "started_at": began, "ended_at": ended, "steps": steps}


def main() -> None:
    """Play until the pod ends."""
    waiting: list[dict[str, Any]] = []
    with LEDGER.open("a", buffering=1) as ledger:
        while True:
            why = ""
            try:
                waiting.append(play())
            except OSError as error:
                why = str(error)[:200] or type(error).__name__
            ledger.write(json.dumps({"at": time.time(), "why": why}) + "\n")
            try:
                while waiting:
                    ask("POST", f"{DATA}/api/v1/trajectories", waiting[0])
                    ledger.write(json.dumps({"acknowledged": waiting.pop(0)["trajectory_id"]}) + "\n")
            except OSError:
                pass  # sent again, as agents do
            time.sleep(REST)


def lost() -> list[str]:
    """Acknowledged, and not in the data plane."""
    lines = [json.loads(line) for line in LEDGER.read_text().splitlines()]
    missing = dict.fromkeys([line["acknowledged"] for line in lines if "acknowledged" in line][-NEWEST:])
    query: dict[str, str] = {"agent": "chaos", "limit": "20"}
    for _ in range(2 * NEWEST // 20):
        page = ask("GET", f"{DATA}/api/v1/experience/trajectories?{urllib.parse.urlencode(query)}")
        for one in page["trajectories"]:
            missing.pop(one["trajectory_id"], None)
        if page["next"] is None or not missing:
            break
        query["after"] = page["next"]
    return list(missing)


if __name__ == "__main__":
    if sys.argv[-1] == "lost":
        print(json.dumps(lost()))
    else:
        main()
