"""The local base image: Debian trixie with Python 3.13, for machines that cannot reach an image registry."""

import hashlib
import os
import shutil
import ssl
from pathlib import Path

from cluster.node import mounts
from images import buildah, emulation
from toolkit.commands import follow, run
from toolkit.errors import Refusal
from toolkit.progress import Step, step

REFERENCE = "localhost/learnloop/base:trixie"
SUITE = "trixie"
PACKAGES = "python3,python3-venv,ca-certificates"
BUNDLE_IN_IMAGE = "/etc/ssl/certs/ca-certificates.crt"

# Every tool that opens a TLS connection during a build or at run time has its own name for the same file.
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/cache/debconf",
    "var/log",
)


def reference(architecture: str) -> str:
    """Its name in the builder's store."""
    return f"{REFERENCE}{emulation.suffix(architecture)}"


def ensure(architecture: str) -> str:
    """Have the base image in the builder's store. Returns its id.

    Raises Refusal without a certificate bundle, CommandFailed when a tool fails.
    """
    bundle = machine_bundle()
    recipe = repr((SUITE, PACKAGES, CERTIFICATE_VARIABLES, NOT_NEEDED))
    wanted = hashlib.sha256(recipe.encode() + bundle.read_bytes()).hexdigest()
    note = buildah.folder() / f"base{emulation.suffix(architecture)}"
    identifier = buildah.identifier(reference(architecture))
    if identifier is None or not note.exists() or note.read_text() != wanted:
        title = f"base image (Debian {SUITE}, Python 3.13, {architecture})"
        with emulation.of(architecture), step(title) as current:
            _build(bundle, architecture, current)
        identifier = buildah.identifier(reference(architecture))
        note.write_text(wanted)
    if identifier is None:
        raise Refusal(f"buildah has no base image after building it. Remove {buildah.folder()} and try again.")
    return identifier


def machine_bundle() -> Path:
    """This machine's certificate authorities: builds may have to download through a private one.

    Raises Refusal without a bundle.
    """
    named = os.environ.get("SSL_CERT_FILE")
    standard = ssl.get_default_verify_paths().cafile
    for candidate in (named, standard, BUNDLE_IN_IMAGE, "/etc/pki/tls/certs/ca-bundle.crt"):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    raise Refusal("No certificate bundle found. Install ca-certificates, or name one in SSL_CERT_FILE.")


def _build(bundle: Path, architecture: str, current: Step) -> None:
    root = buildah.folder() / "base-root"
    downloads = buildah.folder() / "debs"
    mounts.unmount_below(root)  # debootstrap mounts /proc and /sys there, and may have been ended half-way
    shutil.rmtree(root, ignore_errors=True)
    downloads.mkdir(parents=True, exist_ok=True)
    options = [f"--arch={architecture}", "--variant=minbase", f"--include={PACKAGES}", f"--cache-dir={downloads}"]
    environment = {**os.environ, **emulation.variables(architecture)}
    follow(["nice", "-n", "10", "debootstrap", *options, SUITE, root], current, env=environment)
    _trim(root)
    shutil.copyfile(bundle, root / BUNDLE_IN_IMAGE.lstrip("/"))
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    current.detail = "committing"
    _commit(root, architecture)
    shutil.rmtree(root)


def _trim(root: Path) -> None:
    for folder in NOT_NEEDED:
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir(parents=True)


def _commit(root: Path, architecture: str) -> None:
    container = run(buildah.command("from", "scratch")).strip()
    try:
        run(buildah.command("add", "--quiet", container, root, "/"))
        variables = [part for name in CERTIFICATE_VARIABLES for part in ("--env", f"{name}={BUNDLE_IN_IMAGE}")]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        options = ["--arch", architecture, "--env", path, "--cmd", "python3"]
        run(buildah.command("config", *variables, *options, container))
        run(buildah.command("commit", "--quiet", "--format", "oci", container, reference(architecture)))
    finally:
        run(buildah.command("rm", container))
