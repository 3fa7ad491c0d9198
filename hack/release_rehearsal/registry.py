"""A registry of container images on the loopback: the `distribution` project's, as Debian packages it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from learnloop_local.addresses import LOOPBACK, free_port
from toolkit.debian_packages import unpacked
from toolkit.progress import wait_until

CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: {address}}}
"""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Its address while the block runs; containerd and cosign speak plain HTTP with an address of the loopback."""
    program = unpacked("docker-registry", "usr/bin/docker-registry")
    address, config = f"{LOOPBACK}:{free_port()}", folder / "config.yml"
    folder.mkdir()
    config.write_text(CONFIG.format(folder=folder, address=address))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", config], stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until("the registry", lambda: _answers(address), 60, f"see {folder / 'log'}")
        yield address
    finally:
        process.terminate()
        process.wait()


def _answers(address: str) -> bool:
    try:
        return bool(urlopen(f"http://{address}/v2/", timeout=5).status == 200)
    except (URLError, OSError):
        return False
