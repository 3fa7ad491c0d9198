"""`python -m learnloop_dataplane` serves; `… migrate` upgrades the database.

`… replay-dead-letters` publishes again what was refused.
"""

import argparse
import asyncio
import logging
import sys

import uvicorn

from learnloop_api.tls.issued import NotIssued, own_context
from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.api.http.head_deadlines import protocol
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.nats.subjects import CODES
from learnloop_dataplane.tuning.memory_allocator import settle


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 the database or NATS refused or there is no certificate, 2 configuration error."""
    options = _parser().parse_args(arguments)
    try:
        config = Config.from_env()
    except ConfigError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if options.verb == "migrate":
        return _migrate(config)
    if options.verb == "replay-dead-letters":
        from learnloop_dataplane.experience.dead_letter_replay_command import run

        return asyncio.run(run(config, options))
    try:
        app = create_app(config)
    except ConfigError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    try:
        tls = own_context()
    except (NotIssued, ValueError, OSError) as error:
        print(f"TLS: {error}", file=sys.stderr)
        return 1
    settle()
    uvicorn.run(
        app,
        host=config.host,
        port=config.port,
        loop="uvloop",
        http=protocol(),
        access_log=False,
        proxy_headers=False,  # nobody asks where a request came from, only who sends it
        log_level=config.log_level.lower(),
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        limit_concurrency=1000,
        server_header=False,
        ssl_context_factory=(lambda *_: tls) if tls else None,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m learnloop_dataplane", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    verbs.add_parser("migrate", help="upgrade the database and exit")
    replay = verbs.add_parser("replay-dead-letters", help="publish refused events again, oldest first")
    replay.add_argument("--namespace", help="only letters of this namespace ('-': of none that could be told)")
    replay.add_argument("--code", choices=CODES, help="only those refused for this")
    replay.add_argument("--reason", metavar="TEXT", help="only those whose reason contains this, in any case")
    replay.add_argument("--limit", type=int, metavar="N", help="at most so many")
    replay.add_argument("--dry-run", action="store_true", help="show them, one JSON line each, and change nothing")
    return parser


def _migrate(config: Config) -> int:
    from learnloop_dataplane.postgres.migrate import migrate

    try:
        asyncio.run(migrate(config.dsn.get_secret_value()))
    except Exception as error:
        print(f"migration failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
