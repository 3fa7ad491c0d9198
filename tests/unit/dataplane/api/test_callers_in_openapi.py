"""OpenAPI's description of the caller, which no route has as parameters of its own."""

from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.api.route_input import IDENTITY_PARAMETERS
from learnloop_dataplane.config import Config

FOR_ANYBODY = {"/healthz", "/readyz", "/metrics", "/api/v1/schemas", "/api/v1/schemas/{subject}"}


def test_every_operation_for_callers_names_their_headers_once() -> None:
    app = create_app(Config(dsn="postgresql://data/plane", artifacts="file:///artifacts", auth="none"))
    wanted = sorted((parameter["in"], parameter["name"]) for parameter in IDENTITY_PARAMETERS)
    others = set()
    for path, operations in app.openapi()["paths"].items():
        for operation in operations.values():
            named = sorted((each["in"], each["name"]) for each in operation.get("parameters", ()))
            if [each for each in named if each in wanted] != wanted:
                others.add(path)
    assert others <= FOR_ANYBODY, others
