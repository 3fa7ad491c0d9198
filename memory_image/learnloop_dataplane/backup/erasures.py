"""Records of erasures and opt-outs in backups: an older backup brings nobody back who was erased after it."""

import json
import os
import tempfile
from pathlib import Path

from learnloop_dataplane.backup.folder import ERASURES, Folder, write_lines
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.erasure.requests import FOLDER, OPTED_OUT


async def copy(blobs: BlobStore, folder: Folder) -> None:
    """The keys of all records: a key says all. Raises Unavailable."""
    write_lines(folder.part / ERASURES, sorted(await blobs.keys(f"{FOLDER}/")))


async def put_back(folder: Folder, blobs: BlobStore) -> int:
    """Erasures of every backup that is there, and the opt-outs of the newest. Returns how many.

    The data plane makes them again at its start. Raises Unavailable.
    """
    read = [_keys(name / ERASURES) for name in folder.names()]
    wanted = {key for keys in read for key in keys if not key.endswith(f"/{OPTED_OUT}")} | set(read[-1])
    for key in sorted(wanted):
        handle, name = tempfile.mkstemp(dir=blobs.spool, prefix="restore-")
        with os.fdopen(handle, "wb") as file:
            file.write(b"erased\n")
        try:
            await blobs.put(key, Path(name))
        finally:
            Path(name).unlink(missing_ok=True)
    return len(wanted)


def _keys(path: Path) -> list[str]:
    if not path.exists():
        return []
    found = [str(json.loads(line)) for line in path.read_text().splitlines()]
    return [key for key in found if key.startswith(f"{FOLDER}/") and ".." not in key.split("/")]
