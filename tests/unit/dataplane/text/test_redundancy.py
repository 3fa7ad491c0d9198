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


CORRECTIONS = {
    "English": (
        "our depot opens at noon on weekdays",
        ["our depot no longer opens at noon on weekdays", "x is outdated"],
    ),
    "German": ("das Lager öffnet werktags um zwölf Uhr", ["das Lager öffnet werktags nicht mehr um zwölf Uhr"]),
    "Dutch": ("het magazijn gaat op werkdagen om twaalf uur open", ["het magazijn gaat niet meer om twaalf uur open"]),
    "Turkish": ("depo hafta içi her gün öğlen açık", ["depo hafta içi her gün öğlen açık değil"]),
    "Hindi": ("गोदाम हर दिन दोपहर में खुलता है", ["गोदाम हर दिन दोपहर में नहीं खुलता है"]),
    "French": ("le dépôt est ouvert à midi en semaine", ["le dépôt n'est jamais ouvert à midi en semaine"]),
    "Spanish": ("el depósito abre los lunes a las doce", ["el depósito nunca abre los lunes a las doce"]),
    "Russian": ("склад открыт в полдень по будним дням", ["склад не открыт в полдень по будним дням"]),
    "Chinese": ("仓库 工作日 中午 十二 点 开门", ["仓库 工作日 中午 十二 点 不 开门"]),
    "Japanese": ("倉庫 は 平日 の 正午 に 開き ます", ["倉庫 は 平日 の 正午 に 開き ません"]),
    "Arabic": ("المستودع يفتح في الظهر كل يوم", ["المستودع لا يفتح في الظهر كل يوم"]),
    "Polish": ("magazyn jest otwarty w południe każdego dnia", ["magazyn nie jest otwarty w południe każdego dnia"]),
    "symbols": ("every valve of the pump stays at 5 bar > gate", ["every valve of the pump stays at -5 bar > gate"]),
}


def corrections() -> list[tuple[str, str]]:
    """A correction replaces a word, adds one somewhere, or leaves one out."""
    found = []
    for fact, changed in CORRECTIONS.values():
        words = fact.split()
        found += [(fact, text if len(text.split()) > 3 else f"{fact} {text}") for text in changed]
        found += [(fact, f"{fact}?"), (fact, f"XX: {fact}"), (fact, " ".join(words[1:])), (fact, " ".join(words[:-1]))]
        found.append((fact, " ".join([*words[:3], "XX", *words[4:]])))
        found.append((fact, " ".join([words[-1], *words[1:-1], words[0]])))
    return found


@pytest.mark.parametrize(("fact", "correction"), corrections())
def test_a_correction_in_any_language_is_neither_a_duplicate_nor_an_echo(fact: str, correction: str) -> None:
    assert duplicates([item(fact), item(correction, 1.0)]) == []
    assert duplicates([item(correction), item(fact, 1.0)]) == []
    assert echoes([item(correction, 160.0)], [Told(100.0, uuid4(), fact)]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("alice pays bob and bob pays alice", "alice pays bob"),
        ("the temperature is -5 degrees", "the temperature is 5 degrees"),
        ("the pipe weighs .5 kg", "the pipe weighs 5 kg"),
        ("we use C++ for the driver", "we use C# for the driver"),
        ("set the flag to !active", "set the flag to active"),
        ("the fee is $5", "the fee is €5"),
        ("the area is 10² m", "the area is 102 m"),
        ("the vote of the board was 👍", "the vote of the board was 👎"),
        ("the invoice portals need one login each day", "the invoice portal needs one login each day"),
    ],
)
def test_what_differs_in_a_sign_or_a_form_is_two_memories(one: str, other: str) -> None:
    assert duplicates([item(one), item(other, 1.0)]) == []


@pytest.mark.parametrize(
    "again",
    [
        "The invoice portal needs two-factor login.",
        "“the invoice portal needs a two factor login”",
        "the  invoice portal needs the two factor\nlogin!",
    ],
)
def test_articles_case_and_punctuation_make_no_second_memory(again: str) -> None:
    kept, copy = item("the invoice portal needs two factor login"), item(again, 1.0)
    assert [(found.id, found.by) for found in duplicates([copy, kept])] == [(copy.id, kept.id)]


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
