"""`python -m learnloop_dataplane.backup copy|finish|check|restore`: the steps of the chart's two CronJobs.

pg_dump runs between copy and finish, pg_restore between check and restore.
"""

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from learnloop_common import telemetry
from learnloop_dataplane.audit.chain import verify
from learnloop_dataplane.blobs import Blobs
from learnloop_dataplane.config import Config, with_password
from learnloop_dataplane.erasure.erased_before_restore import FOLDER, OPTED_OUT
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import HEAD, Database

FORMAT = 3
CONTENTS = "contents.json"
DUMP, ARTIFACTS = "database.dump", "artifacts.ndjson"


class BackupError(Exception):
    """A backup cannot be made or read; the sentence names the file and the fix."""


@dataclass(frozen=True)
class Contents:
    created_at: str
    schema: str = HEAD
    """The newest migration of the database."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """SHA-256 and bytes of each file, by name."""
    format: int = FORMAT


class Folder:
    """One volume of backups."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.part = root / "in-progress"

    def begin(self) -> Path:
        """Empties the folder of the backup in progress."""
        shutil.rmtree(self.part, ignore_errors=True)
        self.part.mkdir(mode=0o700)
        return self.part

    def finish(self) -> Path:
        """Writes the table of contents, then renames the folder; raises BackupError without a dump."""
        if not (self.part / DUMP).is_file():
            raise BackupError(f"{self.part / DUMP} is missing: pg_dump writes it between the two steps")
        files = {
            path.name: {"sha256": digest(path), "bytes": path.stat().st_size} for path in sorted(self.part.iterdir())
        }
        now = datetime.now(UTC)
        contents = asdict(Contents(now.isoformat(timespec="seconds"), files=files))
        (self.part / CONTENTS).write_text(json.dumps(contents, indent=1, sort_keys=True))
        return self.part.rename(self.root / f"learnloop-{now:%Y%m%dT%H%M%S%fZ}")

    def finished(self) -> list[Path]:
        """Complete backups, oldest first."""
        return sorted(path for path in self.root.glob("learnloop-*") if (path / CONTENTS).is_file())

    def chosen(self, name: str) -> Path:
        """The backup of this name, or the newest for an empty name; raises BackupError."""
        backups = self.finished()
        matching = [path for path in backups if path.name == name] if name else backups[-1:]
        if not matching:
            names = ", ".join(path.name for path in backups[-5:]) or "none"
            raise BackupError(f"{self.root} has no backup {name!r}; choose one of: {names}")
        return matching[0]

    def blob(self, sha256: str) -> Path:
        return self.root / "blobs" / sha256[:2] / sha256

    def prune(self, keep: int) -> int:
        """Deletes all but the newest `keep` backups, and blobs without a backup; returns the number of backups."""
        old = self.finished()[:-keep]
        for path in old:
            shutil.rmtree(path)
        named = {sha256 for path in self.finished() for sha256 in artifacts_of(path).values()}
        for path in self.root.glob("blobs/??/*"):
            if path.name not in named:
                path.unlink()
        return len(old)


def read_contents(backup: Path) -> Contents:
    """The table of contents, after every file was compared with its digest.

    Raises:
        BackupError: a file is missing or changed, or the version is newer.
    """
    try:
        contents = Contents(**json.loads((backup / CONTENTS).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise BackupError(f"{backup / CONTENTS} cannot be read: {error}") from None
    if contents.format != FORMAT or contents.schema > HEAD:
        raise BackupError(
            f"{backup.name} has format {contents.format} and schema {contents.schema}, and this version reads "
            f"{FORMAT} and {HEAD}: install the version that made it"
        )
    for name, expected in contents.files.items():
        path = backup / name
        if not path.is_file():
            raise BackupError(f"{path} is missing: copy the whole folder again")
        if digest(path) != expected["sha256"]:
            raise BackupError(f"{path} was changed: its SHA-256 differs; restore an older backup")
    return contents


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_artifacts(backup: Path, artifacts: dict[str, str]) -> None:
    """Writes SHA-256 by key of the artifact store."""
    lines = (json.dumps({"key": key, "sha256": artifacts[key]}) + "\n" for key in sorted(artifacts))
    (backup / ARTIFACTS).write_text("".join(lines))


def artifacts_of(backup: Path) -> dict[str, str]:
    """SHA-256 by key; empty where nothing was copied yet."""
    path = backup / ARTIFACTS
    lines = path.read_text().splitlines() if path.exists() else []
    return {item["key"]: item["sha256"] for item in map(json.loads, lines)}


HELD = ("trajectories", "agent_memories", "artifacts", "model_checkpoints", "erasures")
"""Tables that are empty in an installation without experience."""
_NAMED = """
SELECT namespace || '/artifacts/' || left(sha256, 2) || '/' || sha256 FROM artifacts WHERE namespace = $1
UNION ALL SELECT checkpoint_path FROM model_checkpoints WHERE namespace = $1
"""


async def copy_artifacts(blobs: Blobs, folder: Folder) -> int:
    """Adds the artifact store's content to the backup in progress; returns how many keys it has.

    Called before and after the dump, it copies all that the dump can name. A key never gets other content, so keys of
    the newest backup are not read again.

    Raises:
        Unavailable: the store does not answer.
    """
    copied = artifacts_of(folder.part)
    older = artifacts_of(folder.finished()[-1]) if folder.finished() else {}
    for key in await blobs.keys(""):
        if key in copied:
            continue
        if key in older and folder.blob(older[key]).exists():
            copied[key] = older[key]
        elif (sha256 := await _copied(key, blobs, folder)) is not None:
            copied[key] = sha256
    write_artifacts(folder.part, copied)
    return len(copied)


async def _copied(key: str, blobs: Blobs, folder: Folder) -> str | None:
    """The digest; None where the key was deleted a moment ago."""
    chunks = await blobs.open(key)
    if chunks is None:
        return None
    part, hasher = folder.root / "blob.part", hashlib.sha256()
    with part.open("wb") as file:
        async for chunk in chunks:
            hasher.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    target = folder.blob(hasher.hexdigest())
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part.rename(target)
    return hasher.hexdigest()


async def restore_artifacts(backup: Path, folder: Folder, blobs: Blobs) -> int:
    """Puts a backup's content into the artifact store; returns how many keys.

    Erasures of every backup on the volume are restored, and opt-outs of the newest: the data plane repeats them at its
    start, so an older backup restores no erased person.

    Raises:
        BackupError: a blob is missing or changed.
        Unavailable: the store does not answer.
    """
    wanted = {key: sha256 for key, sha256 in artifacts_of(backup).items() if not _is_erasure(key)}
    for other in folder.finished():
        newest = other == folder.finished()[-1]
        records = {key: sha256 for key, sha256 in artifacts_of(other).items() if _is_erasure(key)}
        wanted |= {key: sha256 for key, sha256 in records.items() if newest or not key.endswith(f"/{OPTED_OUT}")}
    for key, sha256 in wanted.items():
        source = folder.blob(sha256)
        if not source.is_file():
            raise BackupError(f"{source} is missing: copy the folder blobs again")
        if digest(source) != sha256:
            raise BackupError(f"{source} was changed: its SHA-256 differs; take it from another copy")
        with source.open("rb") as content:
            await blobs.put(key, content)
    return len(wanted)


def _is_erasure(key: str) -> bool:
    return key.startswith(f"{FOLDER}/") and ".." not in key.split("/")


async def check(db: Database, backup: Path) -> None:
    """Checks, before anything is written, that the backup is complete and the installation empty.

    Raises:
        BackupError: it is not.
        Unavailable: the database does not answer.
    """
    read_contents(backup)
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            for table in HELD:
                if await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table})"):
                    raise BackupError(
                        f"this installation is not empty: {namespace} has {table}; restore into a new database"
                    )


async def restore(db: Database, blobs: Blobs, backup: Path, folder: Folder) -> dict[str, Any]:
    """Restores the artifacts after pg_restore, and verifies that they and the audit chains are complete.

    Raises:
        BackupError: something differs from the backup; names it.
        Unavailable: a store does not answer; this step may be repeated.
    """
    read_contents(backup)
    count, keys, chains = await restore_artifacts(backup, folder, blobs), artifacts_of(backup), {}
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            missing = [row[0] for row in await connection.fetch(_NAMED, namespace) if row[0] not in keys]
        if missing:
            raise BackupError(f"{backup.name} lacks {len(missing)} artifacts of the database, such as {missing[0]}")
        report = await verify(db, namespace)
        if report.problem is not None:
            raise BackupError(f"the audit chain of namespace {namespace} is incomplete: {report.problem.message}")
        chains[namespace] = report.records
    return {"backup": backup.name, "artifacts": count, "chains": chains}


READY_SECONDS = 60.0


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 the backup is incomplete or the installation not empty, 2 configuration error, 3 a store
    does not answer."""
    options = _parser().parse_args(arguments)
    telemetry.set_up("WARNING")
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
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # obstore's threads abort one ending Python of three, and a Job would count as failed
