"""The Debian packages a node needs, installed when their programs are missing."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from toolkit.commands import follow, run
from toolkit.errors import Refusal
from toolkit.places import REPOSITORY, cache_root
from toolkit.progress import step

CNI_PLUGINS = Path("/usr/lib/cni")

# What has to exist → the package that brings it. crun would do as well as runc, but refuses hybrid cgroups.
NODE = {
    "containerd": "containerd",
    "runc": "runc",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ethtool": "ethtool",
    "socat": "socat",
    "openssl": "openssl",
}
APT = REPOSITORY / "hack" / "apt"
# Once it unpacks, hack/apt does not stop half-way; before that it ends when it is asked to.
UNPACKING_SECONDS = 180.0


def ensure(needed: Mapping[str, str]) -> None:
    """Install the packages whose programs are missing.

    Raises Refusal without apt-get, CommandFailed when it fails.
    """
    missing = [package for program, package in needed.items() if locate(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Refusal(
            f"These packages are missing, and this machine has no apt-get to install them: {', '.join(missing)}. "
            "Install their like, or use your own cluster: `CONTEXT=<kubeconfig context> make demo`."
        )
    with step(f"Debian packages {', '.join(missing)}") as current:
        follow([APT, "install", *missing], current, grace_seconds=UNPACKING_SECONDS)


def locate(program: str) -> str | None:
    """The path of a program, the system administrator's folders included."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def unpacked(package: str, path: str) -> Path:
    """One file of a package that is fetched but not installed, so that it disturbs nothing on this machine.

    Raises CommandFailed when the package cannot be fetched.
    """
    folder = cache_root() / "packages" / package
    wanted = folder / path
    if not wanted.exists():
        with step(f"Debian package {package}, unpacked"):
            _unpack(package, folder)
    return wanted


def _unpack(package: str, folder: Path) -> None:
    making = folder.with_name(f"{package}.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        run([APT, "download", package], cwd=making)
        for archive in making.glob("*.deb"):
            run(["dpkg-deb", "--extract", archive, making])
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
