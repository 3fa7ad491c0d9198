"""Where a run waits for its turn."""

from pydantic import Field

from learnloop_api.kinds.base import KubeName, ObjectName, Resource


class Queue(Resource):
    """A queue of Kueue (kueue.x-k8s.io). It alone decides when the gang runs, and may take it back."""

    name: ObjectName = Field(description="LocalQueue in this namespace.")
    priority_class: KubeName | None = Field(
        default=None, description="WorkloadPriorityClass of the run; left out, that of its pods."
    )
