"""Judgement of a release by others' programs: cosign of its signatures, Krew of its plugin."""

from collections.abc import Mapping
from pathlib import Path

from go_programs.go_build import Module, ensure
from toolkit.commands import run, succeeds
from toolkit.errors import Refusal

SOURCES = Path(__file__).parent / "modules"
COSIGN = Module("cosign", {"cosign": "github.com/sigstore/cosign/v2/cmd/cosign"}, sources=SOURCES)
KREW = Module(
    "krew",
    {
        "krew": "sigs.k8s.io/krew/cmd/krew",
        "validate-krew-manifest": "sigs.k8s.io/krew/cmd/validate-krew-manifest",
    },
    sources=SOURCES,
)
OFFLINE = "--insecure-ignore-tlog=true"
"""A key of one's own stands in no public log."""


def check_signatures(folder: Path, registry: str, digests: Mapping[str, str], public: Path, stranger: Path) -> None:
    """Raises CommandFailed for a signature that cosign refuses, Refusal for one that a stranger's key passes too."""
    cosign = ensure(COSIGN, ["cosign"])["cosign"]
    sums, signature = folder / "SHA256SUMS", folder / "SHA256SUMS.sig"
    file: list[str | Path] = [cosign, "verify-blob", OFFLINE, "--signature", signature, sums, "--key"]
    images: list[list[str | Path]] = [
        [cosign, "verify", OFFLINE, f"{registry}/{repository}@{digest}", "--key"]
        for repository, digest in digests.items()
    ]
    for command in (file, *images):
        run([*command, public])
        if succeeds([*command, stranger]):
            raise Refusal(f"cosign passes another's key: {' '.join(map(str, command))}")


def install_plugin(folder: Path, home: Path) -> Path:
    """Krew's check of the manifest, and an install from the archive; returns the plugin. Raises CommandFailed."""
    programs = ensure(KREW, KREW.programs)
    manifest, archive = folder / "learnloop.yaml", next(folder.glob("kubectl-learnloop-*.tar.gz"))
    run([programs["validate-krew-manifest"], "-manifest", manifest, "-skip-install"])
    install = ["install", f"--manifest={manifest}", f"--archive={archive}"]
    run(["env", f"KREW_ROOT={home}", programs["krew"], *install])
    return home / "bin" / "kubectl-learnloop"
