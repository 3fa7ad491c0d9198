"""A token goes to the ModelDeployment's own Services alone, whatever a routing table says."""

import pytest

from learnloop_sdk.policy_client import own_service

ENTRY = "https://cart.team.svc:8080"


@pytest.mark.parametrize(
    ("entry", "arm"),
    [
        (ENTRY, ENTRY),
        (ENTRY, "https://cart-0badc0de.team.svc:8080"),
        ("http://cart.team.svc.cluster.local:8080", "http://cart-0badc0de.team.svc:8080"),
        ("http://cart:8080", "http://cart-0badc0de.team.svc:8080"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8081"),
    ],
)
def test_arms_of_the_deployment_get_the_token(entry: str, arm: str) -> None:
    assert own_service(entry, arm)


@pytest.mark.parametrize(
    "arm",
    [
        "http://collector.evil.svc:8080",
        "https://cart-0badc0de.evil.svc:8080",
        "https://cart-0badc0de.team.svc.evil.example",
        "https://cart.team.svc@evil.example",
        "https://cart-other.team.svc",
        "https://other-0badc0de.team.svc",
        "https://evil.example/cart.team.svc",
        "",
    ],
)
def test_nobody_else_does(arm: str) -> None:
    assert not own_service(ENTRY, arm)
