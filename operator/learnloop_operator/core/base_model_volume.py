"""The base model of a language model as a volume of a pod, where its address is one of a claim or of an image."""

from typing import Any
from urllib.parse import urlsplit

from learnloop_api import names
from learnloop_api.kinds.language_model import LanguageModel

VOLUME = "learnloop-base-model"


def volumes(model: LanguageModel | None) -> list[dict[str, Any]]:
    """core/v1 Volumes: none where the pod finds or fetches the folder itself (file:// and s3://).

    An image as a volume needs Kubernetes 1.33, or the feature gate ImageVolume before.
    """
    if model is None:
        return []
    parts = urlsplit(model.base.uri)
    if parts.scheme == "pvc":
        return [{"name": VOLUME, "persistentVolumeClaim": {"claimName": parts.netloc, "readOnly": True}}]
    if parts.scheme == "oci":
        return [{"name": VOLUME, "image": {"reference": f"{parts.netloc}{parts.path}", "pullPolicy": "IfNotPresent"}}]
    return []


def mounts(model: LanguageModel | None) -> list[dict[str, Any]]:
    """core/v1 VolumeMounts that go with them, at names.BASE_MODEL_DIRECTORY."""
    if not volumes(model):
        return []
    assert model is not None
    mount: dict[str, Any] = {"name": VOLUME, "mountPath": names.BASE_MODEL_DIRECTORY, "readOnly": True}
    parts = urlsplit(model.base.uri)
    folder = parts.path.strip("/") if parts.scheme == "pvc" else ""
    return [mount | ({"subPath": folder} if folder else {})]
