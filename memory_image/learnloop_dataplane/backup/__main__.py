"""`python -m learnloop_dataplane.backup copy|finish|check|restore`: the steps of the chart's two CronJobs.

pg_dump runs between copy and finish, pg_restore between check and restore.
"""

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from learnloop_dataplane.backup.steps import BackupError, Folder, check, copy_artifacts, restore
from learnloop_dataplane.blobs.blob_store import Blobs
from learnloop_dataplane.config import Config, with_password
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database

READY_SECONDS = 60.0


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 the backup is incomplete or the installation not empty, 2 configuration error, 3 a store
    does not answer."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    try:
        run = _made if options.verb in ("copy", "finish") else _restored
        print(json.dumps(asyncio.run(run(Config.read(), options))))
    except ValueError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    except BackupError as error:
        print(error, file=sys.stderr)
        return 1
    except (ApiError, TimeoutError, OSError) as error:
        print(f"{options.verb}: {error or 'a store does not answer'}; run it again", file=sys.stderr)
        return 3
    return 0


async def _made(config: Config, options: argparse.Namespace) -> dict[str, Any]:
    folder, blobs = Folder(options.folder), Blobs(config.artifacts)
    if options.verb == "copy":
        folder.begin()
    count = await copy_artifacts(blobs, folder)
    if options.verb == "copy":
        return {"artifacts": count}
    made = folder.finish()
    return {"backup": made.name, "artifacts": count, "removed": folder.prune(options.keep)}


async def _restored(config: Config, options: argparse.Namespace) -> dict[str, Any]:
    folder, dsn = Folder(options.folder), config.database_url
    if config.admin_dsn is not None:
        dsn = config.admin_dsn.get_secret_value()
        if passwords := config.lines("admin_password"):
            dsn = with_password(dsn, passwords)
    if options.verb == "check":
        from learnloop_dataplane.postgres.logins import migrate

        await migrate(dsn)  # the dump grants rights to a role that this makes
    db = Database(dsn, pool_size=2)
    db.start()
    try:
        await asyncio.wait_for(db.ready.wait(), READY_SECONDS)
        if options.verb == "check":
            backup = folder.chosen(options.backup)
            await check(db, backup)
            options.checked.write_text(backup.name)
            return {"backup": backup.name}
        backup = folder.chosen(options.checked.read_text())
        return await restore(db, Blobs(config.artifacts), backup, folder)
    finally:
        await db.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m learnloop_dataplane.backup", description=__doc__)
    parser.add_argument("verb", choices=("copy", "finish", "check", "restore"))
    parser.add_argument("folder", type=Path, help="the volume of backups")
    parser.add_argument("--backup", default="", metavar="NAME", help="check: the backup; default: the newest")
    parser.add_argument(
        "--checked",
        type=Path,
        default=Path("/tmp/checked"),
        metavar="FILE",
        help="check writes the backup's name there, and later steps read it (%(default)s)",
    )
    parser.add_argument("--keep", type=_positive, default=14, metavar="N", help="finish: keep N backups (%(default)s)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
