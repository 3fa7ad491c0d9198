"""What a run has read of a log."""

from dataclasses import dataclass

from learnloop_api.wire.trajectory import ExperienceRead
from learnloop_trainer.recordings.recording import Recording


@dataclass(slots=True)
class ReadExperience:
    """Nothing at first, then the same to the run's end."""

    note: ExperienceRead | None = None
    """For the manifest."""
    proof: Recording | None = None
    """Whole episodes that nothing is learned from: they prove a run that has no environment."""
