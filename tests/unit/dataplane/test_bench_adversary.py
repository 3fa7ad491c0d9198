"""What the attackers of `make bench-adversary` send is what it says."""

import random

from bench.adversary.broker_frames import frame
from bench.adversary.found import Found
from bench.adversary.hostile_bodies import BIG, body


def test_every_frame_has_as_many_bytes_as_it_says_so_that_the_next_one_is_read() -> None:
    rng = random.Random(3)
    kinds = set()
    for _ in range(2000):
        head, _, rest = frame(rng).partition(b"\r\n")
        verb, *words = head.split()
        kinds.add(verb)
        if verb == b"SUB":
            assert rest == b""
        else:
            assert len(rest) == int(words[-1]) + 2
            assert rest.endswith(b"\r\n")
        if verb == b"HPUB":
            assert rest[: int(words[-2])].endswith(b"\r\n\r\n")
    assert kinds == {b"PUB", b"HPUB", b"SUB"}


def test_bodies_fill_what_a_body_may_hold() -> None:
    rng = random.Random(3)
    assert max(len(body(rng, big=True)) for _ in range(20)) > 0.9 * BIG
    small = [body(rng, big=False) for _ in range(200)]
    assert len(set(small)) > 190
    assert max(map(len, small)) < 8000


def test_what_was_held_off_is_what_was_tried_without_the_breaches() -> None:
    assert Found(10, ["one came through"], {"frames": 10}).told() == {"tried": 10, "held_off": 9, "frames": 10}
