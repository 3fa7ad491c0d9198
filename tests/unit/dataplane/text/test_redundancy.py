"""What says the same, and what only looks like it."""

import math
from uuid import uuid4

import pytest

from learnloop_dataplane.lifecycle.duplicates import Item, Told, duplicates, echoes

SAID = "the billing service of the northern region sends invoices through port 8080 after each nightly run"


def item(text: str, created: float = 0.0, standing: float = 0.5, **changes: object) -> Item:
    return Item(uuid4(), "semantic", text, created, standing, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("alice reports to bob", "bob reports to alice"),
        ("flight from berlin to paris", "flight from paris to berlin"),
        (
            "the change board of the bank approved the new release plan of the payments team this week",
            "the change board of the bank rejected the new release plan of the payments team this week",
        ),
        (
            "customer alice of the northern region prefers her invoices by letter since the spring",
            "customer bruno of the northern region prefers her invoices by letter since the spring",
        ),
        (
            "the northern parking deck of the old airport hotel building stays open on all sundays",
            "the northern parking deck of the old airport hotel building stays open on all sundays except holidays",
        ),
        ("the old lift of the north wing is working on every floor", "the old lift isn't working on every floor"),
    ],
)
def test_other_names_orders_and_limits_make_two_memories(one: str, other: str) -> None:
    assert duplicates([item(one), item(other, 1.0)]) == []


def test_a_plural_and_an_added_word_make_no_second_memory() -> None:
    kept = item("the invoice portals need one login each day")
    longer = item("invoice portal need one login each day ok", 1.0)
    assert [(found.id, found.by) for found in duplicates([longer, kept])] == [(longer.id, kept.id)]


@pytest.mark.parametrize(
    ("better", "other"),
    [
        ({"ends": 3600.0}, {}),
        ({"begins": 9000.0}, {}),
        ({"about": "person-1"}, {"about": "person-2"}),
        ({"about": "person-1"}, {}),
        ({"details": frozenset({'["gate",4]'})}, {"details": frozenset({'["gate",5]'})}),
    ],
)
def test_nothing_ends_for_what_goes_sooner_comes_later_or_says_less(better: dict, other: dict) -> None:
    one, two = item(SAID, standing=0.9, **better), item(SAID, standing=0.1, **other)
    assert two.id not in {found.id for found in duplicates([one, two])}


def test_the_one_with_more_details_and_the_longer_life_stays() -> None:
    short, detailed = item(SAID, standing=0.9, ends=100.0), item(SAID, details=frozenset({'["gate",4]'}))
    assert [(found.id, found.by) for found in duplicates([short, detailed])] == [(short.id, detailed.id)]


@pytest.mark.parametrize(
    "text",
    [
        SAID.replace("8080", "9090"),
        SAID.replace("sends", "never sends"),
        SAID.replace("northern", "southern"),
        f"it is not true that {SAID}",
        f"until 2027 {SAID}",
    ],
)
def test_a_correction_of_what_was_shown_is_no_echo(text: str) -> None:
    assert echoes([item(text, 160.0)], [Told(100.0, uuid4(), SAID)]) == []


def test_two_shown_texts_strung_together_are_an_echo() -> None:
    other = "the coffee machine on the third floor has to be cleaned by whoever comes first in the morning"
    strung = item(f"what i know is {SAID} and {other}", 160.0)
    assert len(echoes([strung], [Told(100.0, uuid4(), SAID), Told(100.0, uuid4(), other)])) == 1


@pytest.mark.parametrize(
    "shown", [{"ends": 3600.0}, {"about": "person-1"}, {"details": frozenset({"x"})}, {"ends": math.inf}]
)
def test_an_echo_ends_only_for_what_stays_as_long_and_says_all_of_it(shown: dict) -> None:
    echo = item(f"as noted {SAID}", 160.0, about=str(shown.get("about", "")))
    kept = echoes([echo], [Told(100.0, uuid4(), SAID, **shown)])
    assert len(kept) == (0 if shown.get("ends") == 3600.0 else 1)
    of_nobody = item(f"as noted {SAID}", 160.0)
    assert len(echoes([of_nobody], [Told(100.0, uuid4(), SAID, **shown)])) == len(kept), "of whom the shown one is"
    of_another = item(f"as noted {SAID}", 160.0, about="person-2")
    assert echoes([of_another], [Told(100.0, uuid4(), SAID, **shown)]) == []
    richer = item(f"as noted {SAID}", 160.0, details=frozenset({"y"}))
    assert echoes([richer], [Told(100.0, uuid4(), SAID, **shown)]) == []
