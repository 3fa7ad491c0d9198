"""Bills of materials and provenance say what the build reads, and a packed chart which images it was made for."""

import base64
import hashlib
import json
import re
import tarfile
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cluster.node.oci_archive import OCI, Archive, encoded, index
from images import emulation, supply_chain
from images.definitions import DEFINITIONS, Definition
from release import chart, krew, signatures
from release.archives import save
from toolkit.errors import Refusal
from toolkit.places import REPOSITORY

BASE, IMAGE = "sha256:" + "b" * 64, "sha256:" + "a" * 64


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=list(DEFINITIONS))
def test_a_bill_of_materials_is_whole_and_refers_to_itself(definition: Definition) -> None:
    bill = supply_chain.bill_of_materials(definition, BASE)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    references = [one["bom-ref"] for one in bill["components"]]
    assert len(references) == len(set(references))
    assert set(bill["dependencies"][0]["dependsOn"]) == set(references)
    assert bill == supply_chain.bill_of_materials(definition, BASE), "the same image has the same bill"


@pytest.mark.parametrize(
    ("image", "lock"), [("operator", "operator"), ("memory", "memory"), ("nats", "nats"), ("trainer", "trainer-cpu")]
)
def test_every_locked_package_is_in_the_bill(image: str, lock: str) -> None:
    text = (REPOSITORY / f"requirements/{lock}.txt").read_text()
    locked = {
        f"pkg:pypi/{name.lower()}@{version}" for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M)
    }
    bill = supply_chain.bill_of_materials(DEFINITIONS[image], BASE)
    assert {one["purl"] for one in bill["components"] if one["type"] == "library"} == locked
    allowed = [one for part in bill["components"] for one in part.get("properties", [])]
    assert len(allowed) == text.count("--hash=sha256:")


def test_provenance_names_the_image_its_inputs_and_their_digests(tmp_path, monkeypatch):
    monkeypatch.setattr(supply_chain, "FOLDER", tmp_path)
    _, written = supply_chain.write(DEFINITIONS["memory"], "inputs", BASE, IMAGE, "c" * 40)
    statement = json.loads(written.read_text())
    assert statement["subject"] == [{"name": "localhost/learnloop/memory:dev", "digest": {"sha256": "a" * 64}}]
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"]["dockerfile"] == "memory_image/Dockerfile"
    uris = [one["uri"] for one in build["resolvedDependencies"]]
    assert uris == [
        "git+repository",
        "container:base-image",
        "file:memory_image/Dockerfile",
        "file:requirements/memory.txt",
    ]


def test_the_packed_chart_names_its_images_by_digest_and_has_the_definitions(tmp_path: Path) -> None:
    chart.pack(tmp_path, {"operator": IMAGE})
    first = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    chart.pack(tmp_path, {"operator": IMAGE})
    assert first == [path.read_bytes() for path in sorted(tmp_path.iterdir())], "the same files make the same bytes"
    with tarfile.open(tmp_path / "learnloop-0.1.0.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert f'learnloop/operator, tag: "", digest: "{IMAGE}"' in (tmp_path / "learnloop/values.yaml").read_text()
    assert (tmp_path / "learnloop/definitions/learningagents.yaml").exists()
    with pytest.raises(Refusal, match="the chart's own images are operator, trainer"):
        chart.pack(tmp_path, {"nats": IMAGE})


def test_an_archive_lists_its_architectures_and_has_the_parts_of_each(tmp_path: Path) -> None:
    parts = {name: Archive("", encoded({"of": name}), {name: b"layer"}) for name in ("amd64", "arm64")}
    archive = index("learnloop/operator", parts)
    save(archive, tmp_path / "operator.oci.tar")
    with tarfile.open(tmp_path / "operator.oci.tar") as stored:
        blobs = {path.rpartition("/")[2]: stored.extractfile(path).read() for path in stored.getnames()}
    (only,) = json.loads(blobs["index.json"])["manifests"]
    assert (only["mediaType"], only["digest"]) == (f"{OCI}.index.v1+json", archive.digest)
    listed = json.loads(blobs[only["digest"].partition(":")[2]])["manifests"]
    assert {one["platform"]["architecture"]: one["digest"] for one in listed} == {
        name: part.digest for name, part in parts.items()
    }
    assert {part.digest.partition(":")[2] for part in parts.values()} | set(parts) <= set(blobs)


def test_another_architecture_is_emulated_by_debians_rule_for_as_long_as_the_block_runs(tmp_path, monkeypatch):
    other = next(name for name in emulation.PROCESSORS if name != emulation.own())
    rule, register = tmp_path / "rule", tmp_path / "register"
    rule.write_text(r":qemu-x:M::\x7fELF:\xff\xff:/usr/libexec/qemu-binfmt/x-binfmt-P:OPF" + "\n")
    register.touch()
    monkeypatch.setattr(emulation, "BINFMT", tmp_path)
    monkeypatch.setattr(emulation, "unpacked", lambda _, path: rule if path.endswith(".conf") else Path("/cache/qemu"))
    with emulation.of(other):
        _, name, rest = register.read_text().split(":", 2)
        assert rest == r"M::\x7fELF:\xff\xff:/cache/qemu:OPF"
    assert (tmp_path / name).read_text() == "-1", "the kernel forgets a handler that this is written to"
    monkeypatch.setattr(emulation, "BINFMT", tmp_path / "nowhere")
    with pytest.raises(Refusal, match=f"{other} cannot be emulated here"), emulation.of(other):
        pass


def test_a_signature_lies_where_cosign_looks_for_it_and_is_of_the_images_digest(tmp_path: Path) -> None:
    key, path = ec.generate_private_key(ec.SECP256R1()), tmp_path / "key.pem"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(key.private_bytes(*form))
    image = signatures.Signer(path).image("learnloop/operator", IMAGE)
    (layer,) = json.loads(image.manifest)["layers"]
    payload = image.blobs[layer["digest"]]
    assert json.loads(payload)["critical"]["image"]["docker-manifest-digest"] == IMAGE
    signature = base64.b64decode(layer["annotations"][signatures.SIGNATURE])
    key.public_key().verify(signature, payload, ec.ECDSA(hashes.SHA256()))
    assert signatures.tag(IMAGE) == f"sha256-{'a' * 64}.sig"


def test_krew_is_led_to_the_archive_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "kubectl_learnloop-1.whl").touch()
    krew.pack(tmp_path, list(tmp_path.iterdir()), "1.2.3", "https://releases.example.com")
    manifest = yaml.safe_load((tmp_path / "learnloop.yaml").read_text())
    archive = tmp_path / "kubectl-learnloop-1.2.3.tar.gz"
    where = f"https://releases.example.com/{archive.name}", hashlib.sha256(archive.read_bytes()).hexdigest()
    assert {(platform["uri"], platform["sha256"]) for platform in manifest["spec"]["platforms"]} == {where}
    with tarfile.open(archive) as packed:
        assert {"kubectl-learnloop", "LICENSE", "kubectl_learnloop-1.whl"} == set(packed.getnames())
