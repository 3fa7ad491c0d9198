"""The command line of `dead_letter_replay`: one JSON line for each letter of a dry run, and one with the totals."""

import argparse
import asyncio
import json
import sys
from typing import Any

from nats.errors import Error as NatsError

from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.experience.dead_letter_replay import Selection, replay
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.subjects import UNKNOWN, valid_namespace

CONNECT_SECONDS = 15.0


async def run(config: Config, options: argparse.Namespace) -> int:
    """Exit codes: 0 done, 1 NATS does not answer, 2 an option or the configuration is wrong."""
    if config.nats_url is None:
        print("LEARNLOOP_NATS_URL is not set: without NATS there are no dead letters", file=sys.stderr)
        return 2
    if options.namespace is not None and options.namespace != UNKNOWN and not valid_namespace(options.namespace):
        print(f"--namespace {options.namespace!r}: not the name of a namespace", file=sys.stderr)
        return 2
    if options.limit is not None and options.limit < 1:
        print(f"--limit {options.limit}: give 1 or more", file=sys.stderr)
        return 2
    selection = Selection(options.namespace, options.code, options.reason, options.limit)
    bus = Bus(config)
    bus.start()
    try:
        await asyncio.wait_for(bus.ready.wait(), CONNECT_SECONDS)
        report = await replay(bus, selection, dry_run=options.dry_run, show=_show if options.dry_run else _hide)
    except (Unavailable, NatsError, TimeoutError) as error:
        print(f"NATS at {config.nats_url} does not answer: {error or bus.problem}", file=sys.stderr)
        return 1
    finally:
        await bus.close()
    totals = {"matched": report.matched, "replayed": report.replayed, "cut": report.cut, "codes": dict(report.codes)}
    print(json.dumps(totals | {"dry_run": options.dry_run}))
    return 0


def _show(letter: dict[str, Any]) -> None:
    print(json.dumps(letter, ensure_ascii=False))


def _hide(_: dict[str, Any]) -> None:
    """Said in the totals."""
