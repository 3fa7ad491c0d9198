"""`python -m learnloop_memory` serves; `python -m learnloop_memory migrate` upgrades the database and exits."""

import asyncio
import logging
import sys

import uvicorn

from learnloop_memory.api.app import create_app
from learnloop_memory.config import Config
from learnloop_memory.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 the database refused, 2 configuration error."""
    if arguments not in ([], ["migrate"]):
        print("usage: python -m learnloop_memory [migrate]", file=sys.stderr)
        return 2
    try:
        config = Config.from_env()
    except ConfigError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if arguments:
        return _migrate(config)
    uvicorn.run(
        create_app(config),
        host=config.host,
        port=config.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level=config.log_level.lower(),
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        limit_concurrency=1000,
        server_header=False,
    )
    return 0


def _migrate(config: Config) -> int:
    from learnloop_memory.store.migrate import migrate

    try:
        asyncio.run(migrate(config.dsn.get_secret_value()))
    except Exception as error:
        print(f"migration failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
