"""Answers for the data plane, which is not what is measured here: nothing was experienced, everything is accepted.

It is a process of its own, as it is where learnloop runs: in the process that sends a burst and watches it, each of its
answers would wait for that work, and the operator's pass with it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

START_SECONDS = 30.0


async def _stats(request: web.Request) -> web.Response:
    agent = request.match_info["agent"]
    return web.json_response({"agent": agent, "trajectories": 0, "rewarded": 0, "recent_episodes": 0})


async def _nothing(_: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "nothing was reported"}}, status=404)


async def _accepted(_: web.Request) -> web.Response:
    return web.json_response({})


@asynccontextmanager
async def data_plane() -> AsyncIterator[str]:
    """Yields its URL.

    Raises:
        RuntimeError: it ended before it listened.
        TimeoutError: it did not listen within START_SECONDS.
    """
    command = (sys.executable, "-m", __spec__.name)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise RuntimeError(f"the bench's data plane ended before it listened, with {await process.wait()}")
        yield url
    finally:
        process.stdin.close()  # that is how it knows, also when this process is killed
        await process.wait()


async def _serve() -> None:
    app = web.Application()
    app.router.add_get("/api/v1/agents/{agent}/stats", _stats)
    app.router.add_get("/{path:.*}", _nothing)
    app.router.add_route("*", "/{path:.*}", _accepted)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
