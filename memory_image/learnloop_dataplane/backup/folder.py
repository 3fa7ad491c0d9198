"""The folder of backups.

in-progress/          the backup that is being made; renamed when it is complete
learnloop-TIME/       manifest.json, database.dump, artifacts.ndjson
blobs/ab/abcd…        content of the artifact store by SHA-256, kept while a backup names it
"""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from learnloop_dataplane.postgres.schema_facts import HEAD

FORMAT = 2
MANIFEST = "manifest.json"
DUMP, ARTIFACTS = "database.dump", "artifacts.ndjson"


class BackupError(Exception):
    """A backup cannot be made or read; the sentence names the file and the fix."""


@dataclass(frozen=True)
class Manifest:
    """The content of a backup."""

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
        """Writes the manifest, then renames the folder; raises BackupError without a dump."""
        if not (self.part / DUMP).is_file():
            raise BackupError(f"{self.part / DUMP} is missing: pg_dump writes it between the two steps")
        files = {
            path.name: {"sha256": digest(path), "bytes": path.stat().st_size} for path in sorted(self.part.iterdir())
        }
        now = datetime.now(UTC)
        manifest = asdict(Manifest(now.isoformat(timespec="seconds"), files=files))
        (self.part / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
        return self.part.rename(self.root / f"learnloop-{now:%Y%m%dT%H%M%S%fZ}")

    def finished(self) -> list[Path]:
        """Complete backups, oldest first."""
        return sorted(path for path in self.root.glob("learnloop-*") if (path / MANIFEST).is_file())

    def chosen(self, name: str) -> Path:
        """The backup of this name, or the newest for an empty name; raises BackupError."""
        backups = self.finished()
        matching = [path for path in backups if path.name == name] if name else backups[-1:]
        if not matching:
            names = ", ".join(path.name for path in backups[-5:]) or "none"
            raise BackupError(f"{self.root} has no backup {name!r}; choose one of: {names}")
        return matching[0]

    def blob(self, sha256: str) -> Path:
        """The place of a blob."""
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


def read_manifest(backup: Path) -> Manifest:
    """The manifest, after every file was compared with its digest.

    Raises:
        BackupError: a file is missing or changed, or the version is newer.
    """
    try:
        manifest = Manifest(**json.loads((backup / MANIFEST).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise BackupError(f"{backup / MANIFEST} cannot be read: {error}") from None
    if manifest.format != FORMAT or manifest.schema > HEAD:
        raise BackupError(
            f"{backup.name} has format {manifest.format} and schema {manifest.schema}, and this version reads "
            f"{FORMAT} and {HEAD}: install the version that made it"
        )
    for name, expected in manifest.files.items():
        path = backup / name
        if not path.is_file():
            raise BackupError(f"{path} is missing: copy the whole folder again")
        if digest(path) != expected["sha256"]:
            raise BackupError(f"{path} was changed: its SHA-256 differs; restore an older backup")
    return manifest


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
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
