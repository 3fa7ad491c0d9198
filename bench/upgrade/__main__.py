"""`python -m bench.upgrade [--from COMMIT]`: the last tag's release is replaced by this checkout's while it is at work.

Agents of the old SDK and of the new one play, record, recall, remember and read weights all the time, on a real
PostgreSQL and NATS. Meanwhile the database is migrated, and NATS, two data planes and two policy servers are replaced
one by one; then the new ones are replaced by the same once more. While there is no tag, a commit stands for it
(versions.py).

The last line is one JSON object. `lost`, `counted_twice` and `refused` must be 0: refused is each answer that an agent
should have had and had not. What a data plane refuses at its end, of a version that does not drain, is told apart
(`refused_by_ends_without_draining`): no newer version can mend it. Skipped with a reason where the clone has no such
commit.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg

from bench.arguments import parser
from bench.upgrade.counted import counted
from bench.upgrade.installation import NAMESPACE, Installation, Replica
from bench.upgrade.versions import NoSuchVersion, Version, before, now

REPLICAS = 2
STARTED = "everything started"
"""Its refusals are told and do not count: servers that have just begun load what they serve."""
EPISODES_A_STEP = 30
"""That each version's agents play between two acts, so that a slow machine rehearses as much."""
STEP_SECONDS = 300.0
END_SECONDS = 300.0
MOST_TOLD = 20
POLICY = {
    "components": [{"name": "return", "type": "environment", "weight": 1}],
    "normalisation": {"method": "none"},
}


class Player:
    """A process of agents by one version's SDK."""

    def __init__(self, version: Version, installation: Installation, stack: ExitStack) -> None:
        self.folder = installation.folder / f"player-{version.name}"
        self.folder.mkdir()
        self.name = "new" if version.name == "now" else "old"
        settings = {
            "name": self.name, "data": installation.data.url, "policy": installation.policy.url,
            "namespace": NAMESPACE, "token": str(installation.token),
            "weights": installation.weights, "folder": str(self.folder),
        }  # fmt: skip
        command = [version.python, str(Path(__file__).with_name("player.py")), json.dumps(settings)]
        with (self.folder / "log").open("ab") as said:
            self.process = subprocess.Popen(command, env=version.environment(), stderr=said)
        stack.callback(self.process.wait)
        stack.callback(self.process.kill)

    def lines(self, name: str) -> list[str]:
        """What it noted."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def end(self) -> None:
        """Returns when it has delivered everything."""
        (self.folder / "over").touch()
        code = self.process.wait(END_SECONDS)
        assert code == 0, (
            f"the agents of the {self.name} SDK ended with {code}: {(self.folder / 'log').read_text()[-2000:]}"
        )


class Rehearsal:
    """The acts, and what was refused during each."""

    def __init__(self, installation: Installation, players: Sequence[Player]) -> None:
        self._installation, self._players = installation, players
        self._began = time.monotonic()
        self.refused: Counter[str] = Counter()
        self.longest: dict[str, float] = {}
        self._told = {player.name: 0 for player in players}
        self._recalls = dict(self._told)

    def act(self, name: str, work: Callable[[], None]) -> None:
        """Do it under load, and let everybody play on for a while; tells what was refused meanwhile."""
        work()
        before_it = [len(player.lines("episodes")) for player in self._players]
        deadline = time.monotonic() + STEP_SECONDS
        for player, played in zip(self._players, before_it, strict=True):
            while len(player.lines("episodes")) < played + EPISODES_A_STEP:
                assert player.process.poll() is None, f"the agents of the {player.name} SDK ended early"
                assert time.monotonic() < deadline, f"the agents of the {player.name} SDK play no more: {name}"
                time.sleep(0.1)
        self.note(name)

    def note(self, name: str) -> None:
        """Refusals since the last act."""
        for player in self._players:
            lines = player.lines("refusals")
            new, self._told[player.name] = lines[self._told[player.name] :], len(lines)
            self.refused[name] += len(new)
            for line in new[:MOST_TOLD]:
                self.say(f"refused to the {player.name} SDK: {line[:300]}")
        took = [
            float(line) for player in self._players for line in player.lines("seconds")[self._recalls[player.name] :]
        ]
        self._recalls = {player.name: len(player.lines("seconds")) for player in self._players}
        self.longest[name] = max(took, default=0.0)
        self.say(f"{name}: {self.refused[name]} refused, the longest of {len(took)} recalls {self.longest[name]:.1f} s")

    def say(self, text: str) -> None:
        """On standard error."""
        print(f"[upgrade {time.monotonic() - self._began:5.0f} s] {text}", file=sys.stderr, flush=True)


def rehearse(old: Version, new: Version, folder: Path, stack: ExitStack) -> dict[str, Any]:
    """Everything once; the figures."""
    world = Installation(folder, old, stack)
    world.prepare(old)
    schema = asyncio.run(_schema(world.dsn))
    planes = _started([world.start_data(old) for _ in range(REPLICAS)])
    world.request("PUT", "/api/v1/artifacts", (folder / "policy.onnx").read_bytes(), x_learnloop_sha256=world.weights)
    world.request("PUT", "/api/v1/rewards/policies/p/revisions/r1", json.dumps(POLICY).encode(), content_type=JSON)
    body = json.dumps({"reward_policy": "p", "reward_policy_revision": "r1"}).encode()
    for name in ("old", "new"):
        for number in range(3):
            world.request("PUT", f"/api/v1/agents/{name}-{number}", body, content_type=JSON)
    servers = _started([world.start_policy(old) for _ in range(REPLICAS)])
    players = [Player(version, world, stack) for version in (old, new)]
    acts = Rehearsal(world, players)
    migration = 0.0

    def migrate() -> None:
        nonlocal migration
        migration = world.prepare(new)

    def replace(replicas: list[Replica], number: int, start: Callable[[Version], Replica]) -> None:
        [fresh] = _started([start(new)])
        mixed.append(fresh)
        replicas[number], gone = fresh, replicas[number]
        _serves_beside(fresh, gone)
        gone.end()

    mixed: list[Replica] = []
    acts.act(STARTED, lambda: None)
    acts.act("before", lambda: None)
    acts.act("database migrated", migrate)
    acts.act("nats replaced", lambda: world.replace_nats(new))
    for act in ("replaced", "replaced again"):
        for number in range(REPLICAS):
            acts.act(f"data plane {number} {act}", lambda: replace(planes, number, world.start_data))  # noqa: B023
        for number in range(REPLICAS):
            acts.act(f"policy server {number} {act}", lambda: replace(servers, number, world.start_policy))  # noqa: B023
    for player in players:
        player.end()
    acts.note("end")
    episodes, memories = (
        [line for player in players for line in player.lines(name)] for name in ("episodes", "memories")
    )
    found = asyncio.run(counted(world.dsn, episodes, memories))
    ends = () if old.drains else tuple(f"data plane {number} replaced" for number in range(REPLICAS))
    undrained = sum(acts.refused[name] for name in ends)
    return {
        "from": old.name,
        "schemas": [schema, asyncio.run(_schema(world.dsn))],
        **found,
        "refused": acts.refused.total() - acts.refused[STARTED] - undrained,
        "refused_by_ends_without_draining": undrained,
        "refused_by_act": {name: count for name, count in acts.refused.items() if count},
        "longest_recall_seconds": round(max(acts.longest.values()), 1),
        "longest_recall_seconds_before": round(acts.longest["before"], 1),
        "migration_seconds": round(migration, 1),
    }


JSON = "application/json"


def _started(replicas: list[Replica]) -> list[Replica]:
    for replica in replicas:
        replica.serve()
    return replicas


def _serves_beside(fresh: Replica, old: Replica) -> None:
    """Returns when both have been led to since they stood side by side."""
    for replica in (fresh, old):
        seen, deadline = replica.connections, time.monotonic() + STEP_SECONDS
        while replica.connections < seen + 5:
            assert time.monotonic() < deadline, f"nobody was led to the replica of {replica.version.name}"
            time.sleep(0.1)


async def _schema(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval("SELECT version_num FROM alembic_version"))
    finally:
        await connection.close()


def main(arguments: list[str]) -> int:
    """0 when nothing was lost, counted twice or refused, or there is nothing to upgrade from."""
    asked = parser(__doc__)
    asked.add_argument("--from", dest="commit", default="", help="a commit or tag; default: the last tag")
    options = asked.parse_args(arguments)
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="learnloop-upgrade-")))
        try:
            old = before(folder, options.commit)
        except NoSuchVersion as error:
            print(json.dumps({"rehearsal": "upgrade", "skipped": str(error)}))
            return 0
        found = rehearse(old, now(), folder, stack)
    held = not (found["lost"] or found["counted_twice"] or found["refused"] or found["unrewarded"])
    print(json.dumps({"rehearsal": "upgrade", "held": held, **found, "seconds": round(time.monotonic() - began, 1)}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
