"""`python -m bench.gateway`: time of an answer through a gateway and from the model server itself.

Gateway, model server and client are processes of their own. The server gives a token each few milliseconds, and
what is measured stands before, between and behind them: template, tokens, draw of the arm, record on disk, SSE. Each
request through the gateway is followed by one without it, so that a busy machine is busy for both.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp

from learnloop_gateway.chat_tokens import ChatTokens
from testing.language.gateway_process import GatewayProcess, write_routing
from testing.language.tiny_chat_folder import write_folder
from testing.servers.policy_servers import STABLE
from testing.servers.ports import held_port
from testing.servers.recording_server import DataPlane

WARM = 20
BAR = 0.002
SYSTEM = "You look keys up. " * 40


async def timed(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[float, float]:
    """Seconds to the first byte of the body, and to its end."""
    start, first = time.perf_counter(), 0.0
    async with session.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for _ in answer.content.iter_any():
            first = first or time.perf_counter() - start
    return first, time.perf_counter() - start


async def compare(
    through: Callable[[], Awaitable[tuple[float, float]]],
    bare: Callable[[], Awaitable[tuple[float, float]]],
    requests: int,
) -> dict[str, float]:
    """Medians and 99th percentiles in milliseconds."""
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for number in range(requests + WARM):
        for ask, samples in zip((through, bare), times, strict=True):
            took = await ask()
            if number >= WARM:
                samples.append(took)

    def median(which: int, place: int) -> float:
        return statistics.median(took[place] for took in times[which])

    def late(which: int) -> float:
        return statistics.quantiles((took[1] for took in times[which]), n=100)[98]

    return {
        "first_token_overhead_ms": round(1e3 * (median(0, 0) - median(1, 0)), 3),
        "overhead_p50_ms": round(1e3 * (median(0, 1) - median(1, 1)), 3),
        "gateway_p50_ms": round(1e3 * median(0, 1), 3),
        "server_p50_ms": round(1e3 * median(1, 1), 3),
        "gateway_p99_ms": round(1e3 * late(0), 3),
        "server_p99_ms": round(1e3 * late(1), 3),
    }


def processor_seconds(process: int) -> float:
    """Processor seconds of the process so far (proc(5))."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(gateway: str, process: int, server: str, tokens: ChatTokens, requests: int) -> dict[str, Any]:
    """Streams and whole answers."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "What is in k1?"}]
    prompt = tokens.opening(messages, [])
    figures: dict[str, Any] = {"requests": requests, "prompt_tokens": len(prompt)}
    async with aiohttp.ClientSession() as session:
        for name, stream in (("stream", True), ("whole", False)):
            chat = {"model": "cart", "messages": messages, "stream": stream}
            plain = {"model": "base", "prompt": prompt, "max_tokens": 512, "stream": stream}
            before = processor_seconds(process)
            figures[name] = await compare(
                lambda body=chat: timed(session, f"{gateway}/v1/chat/completions", body),  # type: ignore[misc]
                lambda body=plain: timed(session, f"{server}/v1/completions", body),  # type: ignore[misc]
                requests,
            )
            spent = processor_seconds(process) - before
            figures[name]["gateway_cpu_ms"] = round(1e3 * spent / (requests + WARM), 3)
    return figures


def main() -> int:
    """See the module; 1 where the median overhead of a stream is above the bar."""
    parser = argparse.ArgumentParser(description="What a gateway adds to the time of an answer.")
    parser.add_argument("--requests", type=int, default=300)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_folder(folder / "base")
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "bench.gateway.model_server", str(folder / "base")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert process.stdin is not None
        assert process.stdout is not None
        stack.callback(process.stdin.close)
        server = process.stdout.readline().strip()
        data = DataPlane()
        stack.callback(data.shutdown)
        port = stack.enter_context(held_port())
        routing = write_routing(folder, (STABLE, "stable", 100, f"http://127.0.0.1:{port}"))
        upstream = {"kind": "vllm", "url": server, "model": "base"}
        gateway = GatewayProcess(
            folder / "own", folder / "base", port, STABLE, upstream, routing=routing, data_url=data.url
        ).start()
        stack.callback(gateway.stop)
        assert gateway.process is not None
        figures = asyncio.run(
            measure(gateway.url, gateway.process.pid, server, ChatTokens(folder / "base"), given.requests)
        )
    figures["bar_ms"] = 1e3 * BAR
    figures["passed"] = figures["stream"]["overhead_p50_ms"] <= 1e3 * BAR
    print(json.dumps(figures))
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
