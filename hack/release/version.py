"""The one version of a release."""

import re
import tomllib

from release.wheels import PROJECTS
from toolkit.errors import Refusal
from toolkit.places import REPOSITORY

CHART = REPOSITORY / "charts" / "learnloop" / "Chart.yaml"
OF_CHART = re.compile(r"^(version|appVersion): (\S+)$", re.MULTILINE)


def agreed(tag: str = "") -> str:
    """The version of the chart and of each wheel. Raises Refusal where they differ, or the tag is not v and it."""
    lines: list[tuple[str, str]] = OF_CHART.findall(CHART.read_text())
    versions = {f"{CHART.name}: {name}": version for name, version in lines}
    for project in PROJECTS:
        about = tomllib.loads((REPOSITORY / project / "pyproject.toml").read_text())["project"]
        versions[f"{project}/pyproject.toml"] = about["version"]
    if tag:
        versions[f"tag {tag}"] = tag.removeprefix("v") if tag.startswith("v") else f"not v… but {tag}"
    if len(set(versions.values())) > 1:
        listed = "; ".join(f"{where}: {version}" for where, version in versions.items())
        raise Refusal(f"the versions differ: {listed}")
    return versions[f"{CHART.name}: version"]
