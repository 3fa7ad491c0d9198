"""`python -m learnloop_dataplane` serves; `… migrate` upgrades the database, and `… prepare` makes its login, too."""

import argparse
import asyncio
import logging
import ssl
import sys

import uvloop
from fastapi import FastAPI

from learnloop_common import http_server, settings, telemetry
from learnloop_common.tls import own_context
from learnloop_dataplane.api.app import create_app, probes_app
from learnloop_dataplane.config import Config

MOST_CONNECTIONS = 4096  # of all callers; a namespace has `requests_per_namespace` requests under way at most
STARTUP_FAILED = 3
"""As uvicorn has it: the port is taken, or the application did not begin."""


SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter from requests that are due: a recall asks for it six times."""


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 the database or NATS refused or the certificate is missing, 2 configuration error."""
    options = _parser().parse_args(arguments)
    try:
        config = Config.read()
    except settings.ConfigurationError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    telemetry.set_up(config.log_level, config.log_format)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if options.verb in ("migrate", "prepare"):
        return _migrate(config, prepare=options.verb == "prepare")
    try:
        app = create_app(config)
    except settings.ConfigurationError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    try:
        tls = own_context()
    except (ValueError, OSError) as error:
        print(f"TLS: {error}", file=sys.stderr)
        return 1
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(app, config, tls))


async def _serve(app: FastAPI, config: Config, tls: ssl.SSLContext | None) -> int:
    """Serves tenants, and probes and metrics in the same event loop."""
    drain = app.state.data_plane.readiness.drain
    served = http_server.uvicorn_config(
        http_server.closing(app, drain),
        config.host,
        config.port,
        connections=MOST_CONNECTIONS,
        tls=tls,
        lifespan="auto",
    )
    ours = http_server.DrainingServer(served, drain)
    probes = http_server.probes_config(probes_app(app.state.data_plane), config.host, config.probes_port, tls)
    status = await http_server.serve_both(ours, probes)
    return status if ours.started else STARTUP_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m learnloop_dataplane", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    verbs.add_parser("migrate", help="upgrade the database and exit")
    verbs.add_parser(
        "prepare", help="the same as LEARNLOOP_ADMIN_DSN's login, which then hands the database to LEARNLOOP_DSN's"
    )
    return parser


def _migrate(config: Config, *, prepare: bool) -> int:
    from learnloop_dataplane.postgres import logins
    from learnloop_dataplane.postgres.logins import migrate

    admin = config.admin_dsn
    if prepare and admin is None:
        print("configuration error: LEARNLOOP_ADMIN_DSN: set the address with a superuser's login", file=sys.stderr)
        return 2
    try:
        if prepare and admin:
            passwords, admins = config.lines("database_password"), config.lines("admin_password")
            own = config.dsn.get_secret_value()
            work = logins.prepare(admin.get_secret_value(), own, passwords, admin_passwords=admins)
        else:
            work = migrate(config.database_url)
        asyncio.run(work)
    except Exception as error:
        print(f"migration failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
