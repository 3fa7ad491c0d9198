"""A process that ends names the exception behind it, in one line, and its pod says the same."""

import asyncio
from pathlib import Path

import pytest
import uvicorn

from learnloop_common import termination_message
from learnloop_common.http_server import serve_both
from learnloop_sdk.errors import LearnloopError
from testing.servers.ports import held_port


async def grouped(*errors: Exception) -> BaseException:
    async def fail(error: Exception) -> None:
        await asyncio.sleep(0)
        raise error

    try:
        async with asyncio.TaskGroup() as outer:
            async with asyncio.TaskGroup() as inner:
                for error in errors:
                    inner.create_task(fail(error))
            outer.create_task(asyncio.sleep(0))
    except BaseExceptionGroup as group:
        return group
    raise AssertionError("nothing failed")


async def test_groups_are_unwrapped_and_equal_causes_named_once() -> None:
    group = await grouped(KeyError("thermometer"), KeyError("thermometer"), OSError("no disk"))
    assert termination_message.sentence(group) == "KeyError: 'thermometer'; OSError: no disk"


async def test_many_causes_are_cut() -> None:
    group = await grouped(*(ValueError(str(number)) for number in range(6)))
    assert termination_message.sentence(group) == "ValueError: 0; ValueError: 1; ValueError: 2; and 3 more"


def test_our_own_sentence_stands_alone_and_foreign_text_is_one_plain_line() -> None:
    assert termination_message.sentence(LearnloopError("agent: unknown")) == "agent: unknown"
    assert termination_message.sentence(ValueError("\x1b[33mbad\x1b[0m\n value")) == "ValueError: bad value"
    assert termination_message.sentence(ValueError()) == "ValueError"
    assert termination_message.sentence(type("No", (ValueError,), {"__str__": None})()) == "No: its text cannot be read"


async def test_the_cause_is_the_last_line_of_the_log_and_the_termination_message(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(termination_message.ENV_TERMINATION_LOG, str(tmp_path / "message"))
    termination_message.end(await grouped(KeyError("thermometer")), "the actor stops: ")
    line = "the actor stops: KeyError: 'thermometer'"
    assert (tmp_path / "message").read_text() == f"{line}\n"
    assert caplog.messages[-1] == line
    assert "in fail" in caplog.text


async def nothing(scope: object, receive: object, send: object) -> None:
    """An ASGI application that is asked nothing."""


async def raises() -> None:
    raise AttributeError("'NoneType' object has no attribute 'get'")


async def returns() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(("work", "line"), [(raises, "watch: AttributeError"), (returns, "watch ended")])
async def test_the_end_of_a_background_task_ends_its_server(work, line, caplog):
    with held_port() as port:
        server = uvicorn.Server(uvicorn.Config(nothing, host="127.0.0.1", port=port, lifespan="off"))
        async with asyncio.timeout(60):
            assert await serve_both(server, None, endless={"watch": work()}) == 1
    assert line in caplog.messages[-1]


async def test_a_task_that_may_end_ends_nothing_unless_it_fails() -> None:
    with held_port() as port:
        server = uvicorn.Server(uvicorn.Config(nothing, host="127.0.0.1", port=port, lifespan="off"))

        async def stop() -> None:
            await asyncio.sleep(0.3)
            server.should_exit = True
            await asyncio.sleep(60)

        async with asyncio.timeout(60):
            assert await serve_both(server, None, endless={"stop": stop()}, passing={"model": returns()}) == 0


async def test_probes_whose_port_is_taken_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with held_port() as free:
        server = uvicorn.Server(uvicorn.Config(nothing, host="127.0.0.1", port=free, lifespan="off"))
        probes = uvicorn.Config(nothing, host="127.0.0.1", port=port, lifespan="off")
        async with asyncio.timeout(60):
            assert await serve_both(server, probes) == 1
    taken.close()
    assert "probes: SystemExit" in caplog.text


def test_nothing_is_written_where_no_pod_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(termination_message.ENV_TERMINATION_LOG, raising=False)
    monkeypatch.setattr(termination_message, "MOUNTED", tmp_path / "termination-log")
    termination_message.leave("over", {})
    assert not (tmp_path / "termination-log").exists()
