"""The platform's rules for pods that the operator makes for others, checked wherever a pod is rendered.

The chart's admission policy asks the same at the API server. It takes Kubernetes 1.30 and a right without a namespace,
and objects that were there before it are not asked about; this holds without it. Which Secrets and addresses an author
may name is asked there alone: charts/learnloop/templates/authors/named-objects.yaml.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from learnloop_api.kinds import base, language_model, memory_service

VOLUME_KINDS = ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "secret")
ENV_SOURCES = ("configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef")
REASON = "PodNotAllowed"


@dataclass(frozen=True, slots=True)
class PodRules:
    """The platform's lists, `authors` of the chart. An empty list of images or accounts allows any; of kinds, none."""

    __pydantic_config__ = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    images: tuple[str, ...] = ()
    """Prefixes."""
    service_accounts: tuple[str, ...] = ()
    volume_kinds: tuple[str, ...] = VOLUME_KINDS
    """Fields of a core/v1 Volume. Neither hostPath nor projected tokens by default."""
    env_sources: tuple[str, ...] = ENV_SOURCES
    """Fields of a core/v1 EnvVarSource."""


DEFAULT_RULES = PodRules()


def forbidden(options: base.PodOptions, field: str, rules: PodRules) -> str:
    """The part of `options` at `field` that the platform does not allow; "" when it allows all."""
    return (
        _image(options.image, f"{field}.image", rules)
        or _account(options, field, rules)
        or _volumes(options, field, rules)
        or _sources(options, field, rules)
    )


def forbidden_volume(volume: memory_service.ModelVolume, field: str, rules: PodRules) -> str:
    """The same of a volume with a model's files."""
    kind = "persistentVolumeClaim" if volume.claim_name is not None else "image"
    if kind not in rules.volume_kinds:
        return _kind(field, kind, rules)
    return _image(volume.image, f"{field}.image", rules)


def forbidden_base(model: language_model.LanguageModel | None, field: str, rules: PodRules) -> str:
    """The same of a base model that is a volume: its address is one of a claim or of an image."""
    scheme, _, rest = (model.base.uri if model else "").partition("://")
    if scheme not in ("oci", "pvc"):
        return ""
    volume = (
        memory_service.ModelVolume(image=rest)
        if scheme == "oci"
        else memory_service.ModelVolume(claim_name=rest.partition("/")[0])
    )
    return forbidden_volume(volume, f"{field}.base", rules)


def _image(image: str | None, field: str, rules: PodRules) -> str:
    if image is None or not rules.images or image.startswith(rules.images):
        return ""
    return (
        f"{field}: {image!r} begins with none of {', '.join(rules.images)}; leave it out, or have its prefix added to "
        "authors.images of the chart"
    )


def _account(options: base.PodOptions, field: str, rules: PodRules) -> str:
    name = options.service_account_name
    if name is None or not rules.service_accounts or name in rules.service_accounts:
        return ""
    return (
        f"{field}.serviceAccountName: {name!r} is not one of {', '.join(rules.service_accounts)}; leave it out, or "
        "have it added to authors.serviceAccounts of the chart"
    )


def _volumes(options: base.PodOptions, field: str, rules: PodRules) -> str:
    for number, volume in enumerate(options.volumes or ()):
        stray = _first_stray(volume, ("name", *rules.volume_kinds))
        if stray:
            return _kind(f"{field}.volumes[{number}]", stray, rules)
    return ""


def _kind(field: str, kind: str, rules: PodRules) -> str:
    allowed = ", ".join(rules.volume_kinds) or "none"
    return (
        f"{field}: {kind!r} is a kind of volume that the platform does not allow; allowed are {allowed} "
        "(authors.volumeKinds of the chart)"
    )


def _sources(options: base.PodOptions, field: str, rules: PodRules) -> str:
    for number, variable in enumerate(options.env or ()):
        stray = _first_stray(variable.value_from or {}, rules.env_sources)
        if stray:
            allowed = ", ".join(rules.env_sources) or "none"
            return (
                f"{field}.env[{number}].valueFrom: {stray!r} is a source that the platform does not allow; allowed are "
                f"{allowed} (authors.envSources of the chart)"
            )
    return ""


def _first_stray(keys: Iterable[str], allowed: tuple[str, ...]) -> str:
    return next((str(key) for key in sorted(keys) if key not in allowed), "")
