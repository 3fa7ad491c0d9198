"""`python -m learnloop_dataplane.audit` checks the chains of all namespaces, or of one."""

import argparse
import asyncio
import sys

from pydantic_core import to_json

from learnloop_dataplane.audit.verification import VerificationReport, verify
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database

READY_SECONDS = 30.0


def main(arguments: list[str]) -> int:
    """Exit codes: 0 every chain is complete, 1 one is not, 2 configuration error, 3 the database does not answer."""
    parser = argparse.ArgumentParser(prog="python -m learnloop_dataplane.audit", description=__doc__)
    parser.add_argument("verb", choices=("verify",))
    parser.add_argument("--namespace", help="default: all namespaces")
    options = parser.parse_args(arguments)
    try:
        config = Config.read()
    except ValueError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    try:
        reports = asyncio.run(_verify(config, options.namespace))
    except (ApiError, TimeoutError) as error:
        print(f"the chains could not be read: {error or 'PostgreSQL does not answer'}", file=sys.stderr)
        return 3
    for report in reports:
        print(to_json(report.to_json()).decode())
    return 0 if all(report.ok for report in reports) else 1


async def _verify(config: Config, namespace: str | None) -> list[VerificationReport]:
    db = Database(config.database_url, pool_size=2)
    db.start()
    try:
        await asyncio.wait_for(db.ready.wait(), READY_SECONDS)
        return [await verify(db, name) for name in ([namespace] if namespace else await db.namespaces())]
    finally:
        await db.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
