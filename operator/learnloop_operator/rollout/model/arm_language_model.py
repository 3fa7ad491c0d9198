"""The language model that arms speak by, and how it is served: what an arm is made with, beside its pods."""

from dataclasses import dataclass
from typing import Any

from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.language_model import LanguageModel
from learnloop_api.kinds.language_serving import LanguageServing
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core.allowed_pods import PodRules, forbidden, forbidden_base


@dataclass(frozen=True, slots=True)
class Spoken:
    """Both as the spec had them when the arm was made."""

    model: LanguageModel
    serving: LanguageServing

    def to_kube(self) -> dict[str, Any]:
        """As the arm's annotation keeps it."""
        return {"model": self.model.to_kube(), "serving": self.serving.to_kube()}


def stray_image(spoken: Spoken, rules: PodRules) -> str:
    """Which image or volume of it the platform does not allow; "" when it allows all."""
    pods = PodOptions(image=spoken.serving.server.image)
    return forbidden(pods, "spec.serving.language.server", rules) or forbidden_base(
        spoken.model, "spec.languageModel", rules
    )


def spoken_by(spec: ModelDeploymentSpec) -> Spoken | None:
    """What new arms are made with; None: policies of numbers."""
    if spec.language_model is None:
        return None
    # Who else is told of an arm makes no other arm of it.
    serving = (spec.serving.language or LanguageServing()).model_copy(update={"registration": None})
    return Spoken(spec.language_model, serving)


def read_spoken(body: Any) -> Spoken | None:
    """What an arm's annotation says; raises ValueError, TypeError or KeyError for what it cannot say."""
    if body is None:
        return None
    return Spoken(LanguageModel.model_validate(body["model"]), LanguageServing.model_validate(body["serving"]))
