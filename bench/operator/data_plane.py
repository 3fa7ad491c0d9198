"""Answers for the data plane, which is not what is measured here: nothing was experienced, everything is accepted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


async def _stats(request: web.Request) -> web.Response:
    agent = request.match_info["agent"]
    return web.json_response({"agent": agent, "trajectories": 0, "rewarded": 0, "recent_episodes": 0})


async def _nothing(_: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "nothing was reported"}}, status=404)


async def _accepted(_: web.Request) -> web.Response:
    return web.json_response({})


@asynccontextmanager
async def data_plane() -> AsyncIterator[str]:
    """Yields its URL."""
    app = web.Application()
    app.router.add_get("/api/v1/agents/{agent}/stats", _stats)
    app.router.add_get("/{path:.*}", _nothing)
    app.router.add_route("*", "/{path:.*}", _accepted)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
