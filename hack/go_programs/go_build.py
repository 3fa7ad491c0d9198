"""Building the cluster's programs from pinned Go modules, once for each go.mod and go.sum."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from go_programs.go_toolchain import go_command, go_environment
from toolkit.commands import follow, run
from toolkit.locks import acquire
from toolkit.places import cache_root
from toolkit.progress import step

SOURCES = Path(__file__).resolve().parent / "modules"
KUBERNETES_VERSION = "v1.35.4"
# Clients compare the server's version, and without these flags it would be "v0.0.0-master+$Format:%H$".
SCRATCH = "building-"
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
KUBERNETES_FLAGS = " ".join(f"-X {package}.gitVersion={KUBERNETES_VERSION}" for package in VERSION_PACKAGES)


@dataclass(frozen=True)
class Module:
    """One go.mod and the programs it can build: name → package."""

    name: str
    programs: Mapping[str, str]
    linker_flags: str = ""
    go: str = ""
    """The oldest Go that builds it; "": any that builds the others."""
    sources: Path = SOURCES
    """The folder that has a folder of the module's name: tests and benches have their own."""

    @property
    def source(self) -> Path:
        return self.sources / self.name

    def cache(self) -> Path:
        """The folder of this very version's programs."""
        digest = hashlib.sha256(self.linker_flags.encode())
        for path in sorted(self.source.rglob("*")):
            if path.is_file():
                digest.update(str(path.relative_to(self.source)).encode() + path.read_bytes())
        return cache_root() / "bin" / f"{self.name}-{digest.hexdigest()[:12]}"


KUBE = Module(
    "kube",
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "helm": "helm.sh/helm/v3/cmd/helm",
        "coredns": "./coredns",
        "provisioner": "./provisioner",
        "pause": "./pause",
        "nslookup": "./nslookup",
    },
    KUBERNETES_FLAGS,
)
TRAINING_OPERATOR = Module(
    "training-operator", {"training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1"}
)
TRAINER = Module(
    "trainer",
    {
        "trainer-controller-manager": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        "jobset": "sigs.k8s.io/jobset",
    },
)
"""Kubeflow Trainer v2, and the JobSets that it makes."""
DEFINITIONS = Module("definitions", {})
"""Not built: other projects' definitions, for checks of manifests and for tests."""
KUEUE = Module("kueue", {})
"""Not built: the definition of what a queue admits, for tests."""
GATEWAY = Module("gateway", {"contour": "github.com/projectcontour/contour/cmd/contour"})
KWOK = Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"})
"""Plays the kubelets of nodes that do not exist."""
WEAVIATE = Module("weaviate", {"weaviate-server": "github.com/weaviate/weaviate/cmd/weaviate-server"})
KUBE_SCORE = Module("kube-score", {"kube-score": "github.com/zegl/kube-score/cmd/kube-score"})
"""A linter of manifests: `make check-manifests`."""
KUBECONFORM = Module("kubeconform", {"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"})
"""Compares manifests with the definitions of their kinds: `make check-manifests`."""


def ensure(module: Module, names: Iterable[str]) -> dict[str, Path]:
    """The named programs, built if the cache lacks them.

    Raises Refusal without a Go toolchain, CommandFailed when a build fails.
    """
    folder = module.cache()
    wanted = {name: folder / name for name in names}
    if not _missing(wanted):
        return wanted
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        # Asked again: another run may have built them while this one waited for the lock.
        if missing := _missing(wanted):
            _build(module, missing, folder)
    return wanted


def fetch(module: Module) -> None:
    """Download the sources that the module's programs are built from, unless they are built already.

    Raises Refusal without a Go toolchain, CommandFailed when a download fails.
    """
    if _missing({name: module.cache() / name for name in module.programs}):
        with step(f"sources of {module.name}") as current:
            command: list[str | Path] = [go_command(module.go), "list", "-deps", *module.programs.values()]
            follow(command, current, cwd=module.source, env=go_environment())


def module_folder(module: Module, path: str) -> Path:
    """The folder of the sources of a Go module that `module` depends on; manifests come with them.

    Raises Refusal without a Go toolchain, CommandFailed when the module cannot be downloaded.
    """
    note = module.cache() / f"folder-of-{path.replace('/', '-')}"
    if note.exists() and (noted := Path(note.read_text())).is_dir():
        return noted
    answer = run([go_command(module.go), "mod", "download", "-json", path], cwd=module.source, env=go_environment())
    folder = Path(json.loads(answer)["Dir"])
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(str(folder))
    return folder


def _missing(wanted: Mapping[str, Path]) -> list[str]:
    return [name for name, path in wanted.items() if not path.exists()]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        acquire(lock, f"another run builds into {folder}; waiting for it to end")
        yield


def _build(module: Module, names: list[str], folder: Path) -> None:
    """One `go build` for all: they share most of their packages. Renamed into place when whole."""
    go = go_command(module.go)
    for abandoned in folder.glob(f"{SCRATCH}*"):  # by a run that was killed; the lock keeps other builds out
        shutil.rmtree(abandoned)
    making = tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH)
    with step(f"Go build of {', '.join(names)}") as current, making as scratch:
        packages = [module.programs[name] for name in names]
        flags = ["-v", "-ldflags", f"-s -w {module.linker_flags}", "-o", f"{scratch}/"]
        command: list[str | Path] = ["nice", "-n", "10", go, "build", *flags, *packages]
        follow(command, current, cwd=module.source, env=go_environment())
        for name in names:
            built = Path(scratch) / _default_name(module.programs[name])
            shutil.move(built, folder / name)


def _default_name(package: str) -> str:
    """The file name Go gives a program: the last part of its import path that is not a major version."""
    parts = package.split("/")
    return parts[-2] if parts[-1].startswith("v") and parts[-1][1:].isdigit() else parts[-1]
