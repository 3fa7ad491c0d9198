"""Every route of the data plane asks who calls before anything else: a new one is tried here by itself."""

import time
from collections.abc import Iterator
from uuid import UUID

from fastapi.routing import APIRoute

from learnloop_dataplane.api.app import ROUTERS

from ..conftest import Api

Route = tuple[str, str]
FOR_ANYBODY = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/api/v1/schemas"),
    ("GET", "/api/v1/schemas/{subject}"),
}
NAMED = {"subject": "agent.rl.reward.v1", "sha256": "0" * 64, "number": "1", "id": str(UUID(int=0))}


def routes() -> Iterator[Route]:
    """Method and path of each, parameters as they are written."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute), f"{route}: neither a WebSocket nor a mounted app is looked at here"
            yield from ((method, route.path) for method in sorted(route.methods))


def filled(path: str) -> str:
    """The path with a value for each parameter."""
    parts = (part.strip("{}").split(":")[0] if part.startswith("{") else None for part in path.split("/"))
    return "/".join(
        NAMED.get(name, "some") if name else part for name, part in zip(parts, path.split("/"), strict=True)
    )


async def status(api: Api, route: Route, path: str, headers: dict[str, str]) -> int:
    sent = {} if route[0] in ("GET", "HEAD") else {"content": b"{not json"}
    answer = await api.client.request(route[0], path, **sent, headers={"content-type": "application/json", **headers})
    return answer.status_code


async def test_no_route_answers_a_caller_who_proves_nothing_and_none_reads_their_body_first(guarded, cluster):
    callers = {
        "nobody": ({}, 401),
        "expired": ({"Authorization": f"Bearer {cluster.token(exp=int(time.time()) - 600)}"}, 401),
        "audience": ({"Authorization": f"Bearer {cluster.token(aud=['other'])}"}, 401),
        "neighbour": ({"Authorization": f"Bearer {cluster.token('red')}", "x-learnloop-namespace": "blue"}, 403),
    }
    wrong = {}
    for route in routes():
        if route in FOR_ANYBODY:
            continue
        for who, (headers, wanted) in callers.items():
            code = await status(guarded, route, filled(route[1]), headers)
            if code != wanted:
                wrong[who, *route] = code
    assert wrong == {}


async def test_other_spellings_of_a_path_and_of_a_method_lead_around_nothing(guarded: Api) -> None:
    wrong = {}
    for route in routes():
        if route in FOR_ANYBODY:
            continue
        path = filled(route[1])
        others = (path.replace("/v1/", "/v1//"), path.replace("/v1/", "/v1%2F"), f"{path}/../some")
        for spelling in (f"{path}/", f"/{path}", *others):
            code = await status(guarded, route, spelling, {})
            if code not in (307, 401, 404, 405):
                wrong[(*route, spelling)] = code
        for method in ("HEAD", "OPTIONS", "TRACE", "POST", "GET"):
            code = await status(guarded, (method, path), path, {"X-HTTP-Method-Override": route[0]})
            if code not in (401, 404, 405):
                wrong[(method, path, "")] = code
    assert wrong == {}
