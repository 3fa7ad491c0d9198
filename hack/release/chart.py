"""The chart as Helm packs it, and as an OCI archive. Its own images are named by digest where those are known."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from cluster.node.oci_archive import OCI, Archive, described, encoded
from release.archives import packed, save
from toolkit.errors import Refusal
from toolkit.places import REPOSITORY

CHART = REPOSITORY / "charts" / "learnloop"
ABOUT = yaml.safe_load((CHART / "Chart.yaml").read_text())
HELM = "application/vnd.cncf.helm"
IMAGES = ("operator", "trainer", "serving", "memory")
OWN = re.compile(r'(repository: learnloop/(\w+), tag: "", digest: )""')
OTHERS = re.compile(r"repository: (\S+), tag: ([^,\"]+), digest")


def others() -> list[str]:
    """The images of others that values.yaml names."""
    return [":".join(image) for image in OTHERS.findall((CHART / "values.yaml").read_text())]


def pack(folder: Path, digests: Mapping[str, str]) -> Archive:
    """Writes the .tgz and the archive; returns that.

    Raises Refusal for an image that is none of the chart's own, and for no digest of sha256.
    """
    for name, digest in digests.items():
        if name not in IMAGES or not re.fullmatch("sha256:[0-9a-f]{64}", digest):
            raise Refusal(
                f"--digest {name}={digest}: write NAME=sha256:…; the chart's own images are {', '.join(IMAGES)}"
            )
    config, chart = encoded(ABOUT), packed(_files(digests))
    title, version = (f"org.opencontainers.image.{word}" for word in ("title", "version"))
    parts = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": described(f"{HELM}.config.v1+json", config),
        "layers": [described(f"{HELM}.chart.content.v1.tar+gzip", chart)],
        "annotations": {title: ABOUT["name"], version: ABOUT["version"]},
    }
    name = f"{ABOUT['name']}-{ABOUT['version']}"
    (folder / f"{name}.tgz").write_bytes(chart)
    blobs = {str(described("", content)["digest"]): content for content in (config, chart)}
    archive = Archive(f"charts/{ABOUT['name']}", encoded(parts), blobs)
    save(archive, folder / f"{name}.oci.tar")
    return archive


def _files(digests: Mapping[str, str]) -> Iterator[tuple[str, bytes, int]]:
    """Chart.yaml is first, for Helm reads it from a stream. The definitions are a link to crds."""
    files = {path.relative_to(CHART).as_posix(): path.read_bytes() for path in CHART.rglob("*") if path.is_file()}
    files |= {f"definitions/{path.name}": path.read_bytes() for path in (REPOSITORY / "crds").glob("*.yaml")}
    values = files["values.yaml"].decode()
    files["values.yaml"] = OWN.sub(lambda hit: f'{hit[1]}"{digests.get(hit[2], "")}"', values).encode()
    for path in sorted(files, key=lambda path: (path != "Chart.yaml", path)):
        yield f"{ABOUT['name']}/{path}", files[path], 0o644
