"""What the commands need of a cluster."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from learnloop_operator.cli.access.jobs import Jobs
    from learnloop_operator.cli.access.secrets import Secrets
    from learnloop_operator.cli.access.service_proxy import SendRequest

Object = dict[str, Any]
SECONDS = 10
WATCH_SECONDS = 240
KINDS = {
    "learningagents": "LearningAgent",
    "trainingjobs": "TrainingJob",
    "rewardpolicies": "RewardPolicy",
    "modeldeployments": "ModelDeployment",
    "memoryservices": "MemoryService",
}


class Cluster(Protocol):
    """The commands' view of the API server; every method raises CommandError."""

    namespace: str

    def get(self, plural: str, name: str) -> Object: ...

    def find(self, plural: str, name: str) -> Object | None: ...

    def every(self, plural: str) -> list[Object]: ...

    def annotate(self, plural: str, name: str, values: Mapping[str, str | None]) -> None: ...

    def events(self, body: Object) -> list[Object]: ...

    def user(self) -> str: ...

    def listed(self, plural: str) -> tuple[str, dict[str, Object]]: ...

    def watch(self, plural: str, version: str) -> Iterator[tuple[str, Object]]: ...

    def dry_run(self, plural: str, body: Object) -> Object: ...

    def proxy(self, service: str) -> Callable[[str, Mapping[str, str]], tuple[int, str]]: ...

    def forward(self, service: str) -> "SendRequest": ...

    def token(self, account: str, audience: str) -> str: ...

    def jobs(self, namespace: str) -> "Jobs": ...

    def secrets(self, namespace: str) -> "Secrets": ...
