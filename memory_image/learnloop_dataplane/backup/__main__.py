"""`python -m learnloop_dataplane.backup begin|finish|check|restore`: the steps of the chart's two CronJobs.

pg_dump runs between begin and finish, pg_restore between check and restore.
"""

import argparse
import asyncio
import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from learnloop_dataplane.audit.signing import successive_signer, trusted_keys
from learnloop_dataplane.backup.folder import BackupError, Folder
from learnloop_dataplane.backup.making import begin, finish
from learnloop_dataplane.backup.restoring import check, restore
from learnloop_dataplane.blobs.blob_store import open_blobs
from learnloop_dataplane.config import Config
from learnloop_dataplane.config_values import with_password
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.postgres.database import Database

READY_SECONDS = 60.0


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 the backup is not whole or the installation not empty, 2 configuration error, 3 a store
    does not answer."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    try:
        config = Config.read()
        print(json.dumps(asyncio.run(_run(config, options))))
    except ValueError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    except BackupError as error:
        print(error, file=sys.stderr)
        return 1
    except (ApiError, TimeoutError, OSError) as error:
        print(f"{options.verb}: {error or 'a store does not answer'}; to begin again is safe", file=sys.stderr)
        return 3
    return 0


async def _run(config: Config, options: argparse.Namespace) -> dict[str, Any]:
    folder = Folder(options.folder)
    blobs = open_blobs(config.artifacts)
    dsn = config.database_url
    if config.admin_dsn is not None:
        dsn = config.admin_dsn.get_secret_value()
        if passwords := config.lines("admin_password"):
            dsn = with_password(dsn, passwords)
    if options.verb == "check":
        from learnloop_dataplane.postgres.migrate import migrate

        await migrate(dsn)  # the dump grants rights to a role that this makes
    db = Database(dsn, pool_size=2)
    bus = Bus(config) if config.nats_url and options.verb in ("begin", "restore") else None
    db.start()
    if bus:
        bus.start()
    try:
        await asyncio.wait_for(db.ready.wait(), READY_SECONDS)
        if bus:
            await asyncio.wait_for(bus.ready.wait(), READY_SECONDS)
        return await _step(config, options, folder, db, bus, blobs)
    finally:
        if bus:
            await bus.close()
        await db.close()


async def _step(
    config: Config, options: argparse.Namespace, folder: Folder, db: Database, bus: Bus | None, blobs: Any
) -> dict[str, Any]:
    signer = successive_signer(config)
    trusted = trusted_keys(config, signer)
    if options.verb == "begin":
        await begin(db, bus, blobs, folder, datetime.now(UTC).isoformat(timespec="seconds"))
        return {"begun": str(folder.part)}
    if options.verb == "finish":
        keys = _keys(config, options.credentials) if options.recipient else {}
        made = await finish(db, blobs, folder, signer=signer, recipient=options.recipient, keys=keys)
        return {"backup": made.name, "signed": signer is not None, "removed": folder.prune(options.keep)}
    if options.verb == "check":
        backup = folder.chosen(options.backup)
        manifest = await check(db, backup, trusted, unsigned=options.unsigned)
        options.checked.write_text(backup.name)
        return {"backup": backup.name, "created_at": manifest.created_at, "files": len(manifest.files)}
    backup = folder.chosen(options.checked.read_text())
    return await restore(db, bus, blobs, backup, folder, trusted, unsigned=options.unsigned)


def _keys(config: Config, directory: Path) -> dict[str, str]:
    """The Secret's keys as they are mounted; keys of experience may be of another Secret, and are a variable."""
    found = {path.name: path.read_text() for path in sorted(directory.iterdir()) if path.is_file()}
    if config.encryption_keys is not None:
        found["encryption-keys"] = config.encryption_keys.get_secret_value()
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m learnloop_dataplane.backup", description=__doc__)
    parser.add_argument("verb", choices=("begin", "finish", "check", "restore"))
    parser.add_argument("folder", type=Path, help="where backups lie")
    parser.add_argument("--backup", default="", metavar="NAME", help="check: which; default: the newest")
    parser.add_argument(
        "--checked",
        type=Path,
        default=Path("/tmp/checked"),
        metavar="FILE",
        help="check writes there which backup it was, and the steps behind it take that one (%(default)s)",
    )
    parser.add_argument("--unsigned", action="store_true", help="check, restore: the backup may have no signature")
    parser.add_argument("--keep", type=_some, default=14, metavar="N", help="finish: how many stay (%(default)s)")
    parser.add_argument("--recipient", default="", metavar="HEX", help="finish: whom the keys are sealed for")
    parser.add_argument(
        "--credentials", type=Path, default=Path("/run/credentials"), metavar="DIRECTORY", help="(%(default)s)"
    )
    return parser


def _some(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
