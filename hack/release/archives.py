"""Archives whose bytes depend on their files alone."""

import gzip
import io
import tarfile
from collections.abc import Iterable


def packed(files: Iterable[tuple[str, bytes, int]]) -> bytes:
    """A tar.gz of these paths, contents and modes, in this order."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w") as archive,
    ):
        for path, content, mode in files:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
