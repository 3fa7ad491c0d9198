"""An answer goes out in one piece, as soon as it is whole."""

import asyncio
from typing import Any
from unittest.mock import Mock

from learnloop_dataplane.tuning.single_write_responses import OneWrite


async def test_an_answer_is_sent_when_it_is_told_to_be_and_not_after_others_had_their_turn() -> None:
    sent: list[list[bytes]] = []
    transport: Any = Mock(writelines=sent.append)
    answers = OneWrite(transport, asyncio.get_running_loop())
    answers.write(b"head")
    answers.write(b"body")
    assert sent == []
    answers.send()
    assert sent == [[b"head", b"body"]]
    await asyncio.sleep(0)
    assert len(sent) == 1  # and not again


async def test_what_nobody_tells_it_to_send_goes_out_in_the_next_turn_and_before_it_hangs_up() -> None:
    sent: list[list[bytes]] = []
    transport: Any = Mock(writelines=sent.append)
    answers = OneWrite(transport, asyncio.get_running_loop())
    answers.write(b"part of a long answer")
    await asyncio.sleep(0)
    assert sent == [[b"part of a long answer"]]
    answers.write(b"the rest")
    answers.close()
    assert sent[1:] == [[b"the rest"]]
    transport.close.assert_called_once_with()
