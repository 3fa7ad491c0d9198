"""The chart's copy of the custom resource definitions."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import yaml

from .conftest import CHART, LOADER, ROOT, Render

DEFINITIONS = {
    definition["metadata"]["name"]: definition
    for definition in (yaml.load(path.read_text(), LOADER) for path in sorted((ROOT / "crds").glob("*.yaml")))
}


def test_a_packaged_chart_carries_the_definitions_and_no_code(helm: str, tmp_path: Path) -> None:
    """charts/learnloop/definitions is a link."""
    subprocess.run([helm, "package", CHART, "-d", tmp_path], capture_output=True, timeout=240, check=True)
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packaged:
        names = packaged.getnames()
        for path in (ROOT / "crds").glob("*.yaml"):
            member = packaged.extractfile(f"learnloop/definitions/{path.name}")
            assert member.read() == path.read_bytes()
    assert not [name for name in names if name.endswith(".py")]


def test_flux_which_fetches_no_links_has_the_definitions_from_their_own_folder(helm: str, tmp_path: Path) -> None:
    example = yaml.safe_load_all((ROOT / "examples" / "flux" / "agents.yaml").read_text())
    made = {f"{item['kind']}/{item['metadata']['name']}": item for item in example}
    release, kinds = made["HelmRelease/learnloop"]["spec"], made["Kustomization/learnloop-kinds"]["spec"]
    assert len(list((ROOT / kinds["path"]).glob("*.yaml"))) == len(DEFINITIONS)
    links = [path.name for path in CHART.rglob("*") if path.is_symlink()]
    shutil.copytree(ROOT / release["chart"]["spec"]["chart"], tmp_path / "chart", ignore=shutil.ignore_patterns(*links))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(release["values"]))
    subprocess.run([helm, "template", "learnloop", tmp_path / "chart", "-f", tmp_path / "values.yaml"], check=True)


def test_rendered_definitions_equal_the_generated_ones_but_for_keep(render: Render) -> None:
    rendered = {
        item["metadata"]["name"]: item for item in render({"crds": {"enabled": True}}).of("CustomResourceDefinition")
    }
    assert set(rendered) == set(DEFINITIONS)
    for name, item in rendered.items():
        assert item["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        metadata = {key: value for key, value in item["metadata"].items() if key != "annotations"}
        assert {**item, "metadata": metadata} == DEFINITIONS[name]


def test_keep_can_be_given_up_and_definitions_left_out(render: Render) -> None:
    given_up = render({"crds": {"keep": False}}).of("CustomResourceDefinition")
    assert len(given_up) == 5
    assert not any(item["metadata"].get("annotations") for item in given_up)
    assert not render({"crds": {"enabled": False}}).of("CustomResourceDefinition")
