"""Parts and build of an image: a CycloneDX 1.6 bill of materials, and an in-toto statement with SLSA provenance.

Both are read from what the build reads: the hash-locked requirements and the Dockerfile. Packages of
the base image's distribution are not listed, and the bill says that it is incomplete in that.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from images.definitions import COPY, Definition
from toolkit.places import REPOSITORY

FOLDER = REPOSITORY / "dist" / "supply-chain"
LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
BUILD_TYPE = "https://learnloop.dev/hack/images/v1"

Document = dict[str, Any]


def write(definition: Definition, inputs: str, base: str, image: str, commit: str) -> tuple[Path, Path]:
    """Writes both documents of one image; returns their paths.

    Args:
        inputs: digest of everything that the image is made of.
        base: id of the base image; image: id of the image itself.
        commit: of the repository.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    stem = f"{definition.name}-{definition.architecture}"
    bill, statement = FOLDER / f"{stem}.cdx.json", FOLDER / f"{stem}.provenance.json"
    for path, document in (
        (bill, bill_of_materials(definition, base)),
        (statement, provenance(definition, inputs, base, image, commit)),
    ):
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return bill, statement


def commit() -> str:
    """Of the repository; empty where it is not a checkout of git."""
    answer = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def bill_of_materials(definition: Definition, base: str) -> Document:
    """CycloneDX 1.6 (ECMA-424), as JSON. It has no time and no serial number: the same image has the same bill."""
    components = list(_python(definition))
    base_image: Document = {"type": "container", "name": "base-image", "version": base, "bom-ref": f"base:{base}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": definition.name, "version": definition.tag, "bom-ref": "image"}
        },
        "components": [base_image, *components],
        "dependencies": [
            {"ref": "image", "dependsOn": [base_image["bom-ref"], *(one["bom-ref"] for one in components)]}
        ],
        "compositions": [{"aggregate": "incomplete", "assemblies": [base_image["bom-ref"]]}],
    }


def provenance(definition: Definition, inputs: str, base: str, image: str, commit: str) -> Document:
    """An in-toto Statement v1 with the predicate SLSA Provenance v1."""
    materials: list[Document] = [
        {"uri": "git+repository", "digest": {"gitCommit": commit}},
        {"uri": "container:base-image", "digest": {"sha256": base.removeprefix("sha256:")}},
    ]
    for file in sorted({definition.dockerfile, *_requirements(definition)}):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        materials.append({"uri": f"file:{file.relative_to(REPOSITORY)}", "digest": {"sha256": digest}})
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": definition.reference, "digest": {"sha256": image.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "dockerfile": str(definition.dockerfile.relative_to(REPOSITORY)),
                    "arguments": dict(definition.arguments),
                    "architecture": definition.architecture,
                },
                "internalParameters": {"inputs": inputs},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": BUILD_TYPE}},
        },
    }


def _python(definition: Definition) -> Iterator[Document]:
    for file in _requirements(definition):
        for match in LOCKED.finditer(file.read_text()):
            name, version = match["name"].lower(), match["version"]
            purl = f"pkg:pypi/{name}@{version}"
            # A lock has the hashes of all files of a release; which of them was installed depends on the platform.
            allowed = [
                {"name": "learnloop:sha256-allowed", "value": one} for one in sorted(HASH.findall(match["rest"]))
            ]
            library = {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
            yield library | {"properties": allowed}


def _requirements(definition: Definition) -> list[Path]:
    """The locks that the Dockerfile copies."""
    words = (word for match in COPY.finditer(definition.dockerfile.read_text()) for word in match["what"].split())
    files = (definition.context / _filled(word, definition.arguments) for word in words if "requirements/" in word)
    copied = {path for path in files if path.is_file()}
    accelerated = definition.arguments.get("ACCELERATOR") not in ("cpu", "rocm")
    for path in [path for path in copied if path.stem.endswith("-cpu")]:
        # Of two locks the image installs one.
        copied.discard(path if accelerated else path.with_name(path.name.replace("-cpu", "")))
    return sorted(copied)


def _filled(word: str, arguments: Mapping[str, str]) -> str:
    for name, value in arguments.items():
        word = word.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return word
