"""The models that a MemoryService uses, its embedder and its distiller, as its pods' environment has them."""

from typing import Any

from learnloop_api.kinds.memory_service import MemoryServiceSpec, SecretKeyRef

VOLUME, DIRECTORY = "learnloop-embedder", "/models/embedder"


def environment(spec: MemoryServiceSpec) -> dict[str, Any]:
    """Environment of the service."""
    env: dict[str, Any] = {} if spec.language == "english" else {"LEARNLOOP_LANGUAGE": spec.language}
    if (embedder := spec.embedder) is not None:
        if embedder.volume is not None:
            path = "/".join(filter(None, (DIRECTORY, embedder.volume.path)))
            env["LEARNLOOP_EMBEDDER"] = f"{embedder.format}://{path}"
        else:
            env["LEARNLOOP_EMBEDDER"] = f"{embedder.url}#{embedder.model}"
            env["LEARNLOOP_EMBEDDER_DIMENSIONS"] = str(embedder.dimensions)
            env["LEARNLOOP_EMBEDDER_SECONDS"] = str(embedder.timeout_seconds)
            env |= _key("LEARNLOOP_EMBEDDER_KEY", embedder.api_key_secret_ref)
    if (distiller := spec.distiller) is not None:
        env["LEARNLOOP_DISTILLER"] = f"{distiller.url}#{distiller.model}"
        env["LEARNLOOP_DISTILLER_SECONDS"] = str(distiller.timeout_seconds)
        env |= _key("LEARNLOOP_DISTILLER_KEY", distiller.api_key_secret_ref)
    return env


def volumes(spec: MemoryServiceSpec) -> list[dict[str, Any]]:
    """The volume with the embedder's files, if there is one."""
    volume = spec.embedder.volume if spec.embedder else None
    if volume is None:
        return []
    if volume.claim_name is not None:
        return [{"name": VOLUME, "persistentVolumeClaim": {"claimName": volume.claim_name, "readOnly": True}}]
    return [{"name": VOLUME, "image": {"reference": volume.image}}]


def mounts(spec: MemoryServiceSpec) -> list[dict[str, Any]]:
    """Mount of the container."""
    return [{"name": item["name"], "mountPath": DIRECTORY, "readOnly": True} for item in volumes(spec)]


def keys(spec: MemoryServiceSpec) -> dict[str, SecretKeyRef]:
    """The Secrets with keys of the models' servers, by the field that names each."""
    result = {
        "spec.embedder.apiKeySecretRef": spec.embedder.api_key_secret_ref if spec.embedder else None,
        "spec.distiller.apiKeySecretRef": spec.distiller.api_key_secret_ref if spec.distiller else None,
    }
    return {field: key for field, key in result.items() if key is not None}


def _key(name: str, secret: SecretKeyRef | None) -> dict[str, Any]:
    return {} if secret is None else {name: {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
