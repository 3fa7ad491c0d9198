"""`python -m bench.adversary [STATEMENTS [FRAMES [BODIES [REQUESTS [SOCKETS [SPECS [REPORTS]]]]]]]`: on real servers.

- tenants: SQL and HTTP across namespaces (bench.pipeline.tenancy): reads, writes, forged rows, forged tokens.
- broker: NATS frames from a grammar by a tenant's connection, with replies, headers and dedupe ids of others.
- bodies: malformed, deep, wide and numerous JSON; memory at its peak over idle.
- outcomes: forged outcomes at a policy server.
- proofs: forged proofs, heartbeats and checkpoints of a run, next to a real API server.
- sockets: silent and dripping connections next to a neighbour.
- floods: one namespace asks as fast as it can next to a neighbour.
- escalation: custom resources with every field of PodOptions, through what the operator renders.

PostgreSQL, NATS and the data plane as processes, the policy server on a socket. The admission policy, which refuses the
same earlier, takes an API server: tests/api/access/test_authors.py. The last line is one JSON
object; `breaches` must be 0 and `rss_peak_over_idle_mib` at most 200.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from bench.adversary import (
    broker_frames,
    escalation,
    floods,
    forged_proofs,
    hostile_bodies,
    policy_servers,
    slow_sockets,
)
from bench.adversary.finding import Finding
from bench.adversary.rig import Rig, standing
from bench.arguments import numbers
from bench.pipeline import tenancy
from testing.servers.data_plane_process import postgres

MOST_MEMORY_MIB = 200.0
SEED = 20


def tenants(statements: int, requests: int) -> Finding:
    """Across namespaces, in a database of its own."""
    with tempfile.TemporaryDirectory() as text, postgres() as server:
        server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        bounds = {"statements": statements, "requests": requests, "seed": SEED}
        figures = asyncio.run(tenancy.measure(str(server.get_uri()), Path(text), **bounds))
    wrong = {name: figures[name] for name in ("leaked", "victims_rows_lost", "victims_tables_empty") if figures[name]}
    tried = figures["statements"] + figures["forged_writes"] + figures["requests"]
    return Finding(tried, [f"{name}: {count}" for name, count in wrong.items()], {"statements": figures["statements"]})


async def at_the_servers(rig: Rig, frames: int, bodies: int, requests: int, sockets: int) -> dict[str, Finding]:
    """Every class that needs the servers, one after the other: each is measured alone."""
    findings = {}
    classes: dict[str, Awaitable[Finding]] = {
        "broker": broker_frames.attack(rig, frames, SEED),
        "bodies": hostile_bodies.attack(rig, bodies, SEED),
        "outcomes": policy_servers.attack(rig, requests, SEED),
        "sockets": slow_sockets.attack(rig, sockets),
        "floods": floods.attack(rig, 16),
    }
    for name, attack in classes.items():
        findings[name] = await attack
        print(f"[adversary] {name}: {json.dumps(findings[name].as_figures())}", file=sys.stderr, flush=True)
    return findings


def main(arguments: list[str]) -> int:
    """0 when everything was held off."""
    options = numbers(
        __doc__,
        arguments,
        statements=1_000_000,
        frames=10_000,
        bodies=10_000,
        requests=5000,
        sockets=400,
        specs=2000,
        reports=5000,
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as text, standing(Path(text)) as rig:
        findings = asyncio.run(at_the_servers(rig, options.frames, options.bodies, options.requests, options.sockets))
    findings["escalation"] = escalation.attack(options.specs, SEED)
    findings["proofs"] = forged_proofs.attack(options.reports, SEED)
    findings["tenants"] = tenants(options.statements, min(10_000, options.statements))
    breaches = [f"{name}: {text}" for name, one in findings.items() for text in one.breaches]
    for text in breaches[:50]:
        print(f"[adversary] breach: {text}", file=sys.stderr)
    peak = findings["bodies"].figures["rss_peak_over_idle_mib"]
    last: dict[str, Any] = {
        "breaches": len(breaches),
        "rss_peak_over_idle_mib": peak,
        "tried": sum(one.tried for one in findings.values()),
        "classes": {name: one.as_figures() for name, one in findings.items()},
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(last))
    return int(bool(breaches) or peak > MOST_MEMORY_MIB)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
