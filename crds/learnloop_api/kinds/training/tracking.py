"""Experiment trackers that receive a training run's curves."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Resource, Rule


class TensorBoard(Resource):
    """Event files that `tensorboard --logdir` reads."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.directory.startsWith('/')",
            "directory must be a path from the root, where pod.volumeMounts has mounted a volume",
            ".directory",
        ),
    )

    directory: Annotated[str, Field(min_length=2, max_length=1024)] = Field(
        description="Directory in rank 0's pod, on a volume of pod.volumes; a run writes to the folder of its name."
    )


class MlFlow(Resource):
    """A run on an MLflow 2 or 3 tracking server."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.trackingUri.matches('^https?://[^/?#@]+(/[^?#@]*)?$')",
            "trackingUri must be an http or https address without user or password: those come from a Secret, "
            "as MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, in pod.env",
            ".trackingUri",
        ),
    )

    tracking_uri: Annotated[str, Field(min_length=1, max_length=1024)] = Field(
        description="Address of the tracking server, e.g. http://mlflow.mlops:5000."
    )
    experiment: Annotated[str, Field(min_length=1, max_length=250)] = Field(
        default="learnloop", description="Name of the experiment; made when there is none."
    )


class Tracking(Resource):
    """Curves for other tools. What cannot be written is left out with a warning: training never waits for it."""

    tensorboard: TensorBoard | None = Field(default=None, description="Left out, no event files.")
    mlflow: MlFlow | None = Field(
        default=None, description="Left out, no MLflow run, unless pod.env sets MLFLOW_TRACKING_URI."
    )
