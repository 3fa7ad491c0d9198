"""Traces: nothing is set without a request."""

from ..conftest import Render


def test_no_variable_is_there_without_an_endpoint(render: Render) -> None:
    assert "LEARNLOOP_TRACES" not in str(render({}).pods())


def test_the_operator_gets_the_endpoint_and_the_headers_as_a_reference(render: Render) -> None:
    wanted = {"endpoint": "http://collector:4318", "headersSecretName": "otlp"}
    pods = render({"traces": wanted}).pods()
    variables = {
        item["name"]: item
        for pod in pods.values()
        for container in pod["spec"]["containers"]
        for item in container.get("env", [])
        if item["name"].startswith("LEARNLOOP_TRACES")
    }
    assert variables["LEARNLOOP_TRACES_ENDPOINT"]["value"] == "http://collector:4318"
    assert variables["LEARNLOOP_TRACES_HEADERS"]["valueFrom"] == {"secretKeyRef": {"name": "otlp", "key": "headers"}}
