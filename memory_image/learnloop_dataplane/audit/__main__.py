"""`python -m learnloop_dataplane.audit verify` checks the chains; `… public-key` prints the key that
signatures are checked with."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from pydantic_core import to_json

from learnloop_dataplane.audit.signing import Checkpoint, trusted_keys
from learnloop_dataplane.audit.verification import VerificationReport, verify
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database

READY_SECONDS = 30.0


def main(arguments: list[str]) -> int:
    """Exit codes: 0 every chain is complete, 1 one is not, 2 configuration error, 3 the database does not answer."""
    options = _parser().parse_args(arguments)
    try:
        config = Config.read()
        checkpoints = [Checkpoint.from_json(json.loads(path.read_bytes())) for path in options.checkpoint]
        trusted = [*trusted_keys(config), *(bytes.fromhex(key) for key in options.public_key)]
    except (OSError, ValueError) as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    if options.verb == "public-key":
        for key in trusted:
            print(key.hex())
        return 0 if trusted else 2
    try:
        reports = asyncio.run(_verify(config, options.namespace, trusted, checkpoints))
    except (ApiError, TimeoutError) as error:
        print(f"the chains could not be read: {error or 'PostgreSQL does not answer'}", file=sys.stderr)
        return 3
    for report in reports:
        print(to_json(report.to_json()).decode())
    return 0 if all(report.ok for report in reports) else 1


async def _verify(
    config: Config, namespace: str | None, trusted: list[bytes], checkpoints: list[Checkpoint]
) -> list[VerificationReport]:
    db = Database(config.database_url, pool_size=2)
    db.start()
    try:
        await asyncio.wait_for(db.ready.wait(), READY_SECONDS)
        return [
            await verify(db, name, trusted=trusted, kept=[item for item in checkpoints if item.namespace == name])
            for name in ([namespace] if namespace else await db.namespaces())
        ]
    finally:
        await db.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m learnloop_dataplane.audit", description=__doc__)
    parser.add_argument("verb", choices=("verify", "public-key"))
    parser.add_argument("--namespace", help="default: all namespaces")
    parser.add_argument(
        "--public-key", action="append", default=[], metavar="HEX", help="trusted as well, e.g. an earlier key"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="one that you kept elsewhere",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
