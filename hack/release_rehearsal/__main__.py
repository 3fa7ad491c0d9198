"""`make release-rehearsal`: `make release` twice, a registry, an install from it alone, the quickstart's first model.

Needs root and the local cluster. The last line is one JSON object.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.locking import exclusive
from cluster.node.containerd import Client
from cluster.state_folder import State
from demo import source_cluster
from demo.api import Api, connect
from demo.learning import watch_it_learn
from demo.narrator import Narrator
from demo.running import run_shown, tool
from demo.settings import RELEASE, SYSTEM_NAMESPACE, Settings
from demo.story import Figures, require, run_story
from images import buildah
from images.build import build
from images.definitions import choose
from release.chart import IMAGES, others
from release.version import agreed
from release_rehearsal import outside_judges, registry
from toolkit.commands import run
from toolkit.main_program import run_as_program
from toolkit.places import REPOSITORY, cache_root
from toolkit.progress import step

STAND_INS = {"pgvector/pgvector": "postgres", "nats": "nats", "prom/prometheus": "prometheus"}
"""The chart's name of an image of others → ours of hack/images: no registry that has the real one can be reached."""


def main() -> int:
    """Returns the exit status."""
    narrator, version, began = Narrator(), agreed(), time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="release-", dir=cache_root()))
    try:
        key, public, stranger = _keys(scratch)
        folder = _release_twice(scratch, key, version)
        with registry.serve(scratch / "registry") as address:
            run_shown([str(folder / "push"), address, "--dest-tls-verify=false"])
            _push_others(address)
            digests = _digests(folder)
            with step("cosign verifies"):
                outside_judges.check_signatures(folder, address, digests, public, stranger)
            plugin = outside_judges.install_plugin(folder, scratch / "krew")
            figures = _turn(address, version, digests, plugin, narrator)
    finally:
        shutil.rmtree(scratch)
    print(json.dumps({"version": version, **figures, "total_seconds": round(time.monotonic() - began, 1)}), flush=True)
    return 0


def _keys(folder: Path) -> tuple[Path, Path, Path]:
    """The signer's key, its public half, and a stranger's public half."""
    keys = []
    for name in ("key", "stranger"):
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private])
        run(["openssl", "ec", "-in", private, "-pubout", "-out", public])
        keys += [private, public]
    return keys[0], keys[1], keys[3]


def _release_twice(scratch: Path, key: Path, version: str) -> Path:
    """The second run gets by --digest what the first has built, so all its files but the images are the same."""
    first, second = scratch / "release", scratch / "again"
    same: list[str | Path] = [sys.executable, REPOSITORY / "hack" / "release", "--key", key, "--tag", f"v{version}"]
    with step("make release, twice"):
        run([*same, "--images", "--folder", first])
        digests = [f"--digest={name}={_digests(first)[f'learnloop/{name}']}" for name in IMAGES]
        run([*same, *digests, "--folder", second])
    of_images = {path.name for path in first.iterdir() if path.name.startswith(IMAGES)}
    names = {path.name for path in first.iterdir()} - of_images
    require(names == {path.name for path in second.iterdir()}, "two runs of make release made other files")
    for name in names - {"push", "SHA256SUMS", "SHA256SUMS.sig"}:  # these name the images' archives
        require((first / name).read_bytes() == (second / name).read_bytes(), f"two runs made two {name}")
    return first


def _digests(folder: Path) -> dict[str, str]:
    """Repository → digest of all that `push` pushes and signs."""
    lines = [line for line in (folder / "push").read_text().splitlines() if ".sig.oci.tar " in line]
    names = (line.split()[1].removesuffix(".sig").partition(":") for line in lines)
    return {repository: tag.replace("-", ":") for repository, _, tag in names}


def _push_others(address: str) -> None:
    definitions = {name: choose([stand_in])[0] for name, stand_in in STAND_INS.items()}
    with exclusive(State(buildah.folder())):
        build(list(definitions.values()), None)
        for image in others():
            definition = definitions.get(image.partition(":")[0])
            if definition:  # servers of language models are not part of the quickstart
                with step(f"pushing {definition.reference} as {image}") as current:
                    buildah.export(definition.reference, current)
                    source = f"oci:{buildah.folder() / 'export'}:{definition.reference}"
                    options = ["--quiet", "--preserve-digests", "--dest-tls-verify=false"]
                    run(["skopeo", "copy", *options, source, f"docker://{address}/{image}"])


def _turn(address: str, version: str, digests: dict[str, str], plugin: Path, narrator: Narrator) -> Figures:
    kubeconfig = source_cluster.state().kubeconfig
    tools, settings = kubeconfig.parent / "bin", Settings.read()
    os.environ |= {"KUBECONFIG": str(kubeconfig), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    chart = [f"oci://{address}/charts/{RELEASE}", "--plain-http", f"--version={version}"]
    where = [f"--namespace={SYSTEM_NAMESPACE}", "--create-namespace", f"--set=global.imageRegistry={address}"]
    with _images_removed(address) as pulled:
        _remove_release()
        run_shown([tool("helm"), "upgrade", "--install", RELEASE, *chart, *where, "--wait", "--timeout=30m"])
        with connect([tool("kubectl")]) as api:
            figures = run_story(api, settings, lambda: _first_model(api, settings, narrator))
            why: list[str | Path] = [plugin, "why", settings.agent, "--namespace", settings.namespace]
            print(run(["env", f"XDG_CACHE_HOME={plugin.parents[1]}", *why]))
            _check_images(api, settings, address)
        wanted = {f"{address}/{image}" for image in others() if image.partition(":")[0] in STAND_INS}
        wanted |= {f"{address}/learnloop/{name}@{digests[f'learnloop/{name}']}" for name in IMAGES}
        # containerd lists what it pulled by a tag under its digest, too.
        require(wanted <= set(pulled()), f"never pulled: {sorted(wanted - set(pulled()))}")
    return figures


def _remove_release() -> None:
    """The demo's, whose volumes have other sizes, or an earlier rehearsal's."""
    run([tool("helm"), "uninstall", RELEASE, "--wait", "--ignore-not-found", f"--namespace={SYSTEM_NAMESPACE}"])
    run([tool("kubectl"), "delete", "namespace", SYSTEM_NAMESPACE, "--ignore-not-found", "--wait", "--timeout=300s"])


def _first_model(api: Api, settings: Settings, narrator: Narrator) -> Figures:
    learned = watch_it_learn(api, settings, narrator)
    return {"promoted_return": round(learned.promoted_return, 1), "loop_seconds": round(learned.loop_seconds, 1)}


def _check_images(api: Api, settings: Settings, address: str) -> None:
    for namespace in (SYSTEM_NAMESPACE, settings.namespace):
        for pod in (api.get(f"/api/v1/namespaces/{namespace}/pods") or {})["items"]:
            for container in pod["spec"]["containers"]:
                image = container["image"]
                require(image.startswith(f"{address}/"), f"{image} of {pod['metadata']['name']} is not of the registry")


@contextmanager
def _images_removed(address: str) -> Iterator[Callable[[], list[str]]]:
    """Lists what the cluster has of the registry; the next one has another port, so none of it stays."""
    client = Client(source_cluster.state())

    def pulled() -> list[str]:
        return [name for name in client.images() if name.startswith(f"{address}/")]

    try:
        yield pulled
    finally:
        for name in pulled():
            client.call("images", "rm", name)


if __name__ == "__main__":
    sys.exit(run_as_program("make release-rehearsal", main))
