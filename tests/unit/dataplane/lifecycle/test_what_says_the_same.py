"""Texts that say the same, and texts that only look like it."""

import math
from collections.abc import Sequence
from uuid import uuid4

import pytest

from learnloop_dataplane.lifecycle.duplicates import Comparison, Item, RecalledMemory, Superfluous

TEXT = "the billing service of the northern region sends invoices through port 8080 after each nightly run"


def junk(items: Sequence[Item], recalled: Sequence[RecalledMemory] = ()) -> list[Superfluous]:
    comparison = Comparison(recalled)
    comparison.read(items)
    return comparison.junk()


def item(text: str, created: float = 0.0, standing: float = 0.5, **changes: object) -> Item:
    return Item(uuid4(), "semantic", text, created, standing, **changes)


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
    pairs = []
    for fact, changed in CORRECTIONS.values():
        words = fact.split()
        pairs += [(fact, text if len(text.split()) > 3 else f"{fact} {text}") for text in changed]
        pairs += [(fact, f"{fact}?"), (fact, f"XX: {fact}"), (fact, " ".join(words[1:])), (fact, " ".join(words[:-1]))]
        pairs.append((fact, " ".join([*words[:3], "XX", *words[4:]])))
        pairs.append((fact, " ".join([words[-1], *words[1:-1], words[0]])))
    return pairs


@pytest.mark.parametrize(("fact", "correction"), corrections())
def test_a_correction_in_any_language_is_neither_a_duplicate_nor_an_echo(fact: str, correction: str) -> None:
    assert junk([item(fact), item(correction, 1.0)]) == []
    assert junk([item(correction), item(fact, 1.0)]) == []
    assert junk([item(correction, 160.0)], [RecalledMemory([100.0], uuid4(), fact)]) == []


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
        ("he has few friends in the town", "he has a few friends in the town"),
        ("Anna trinkt a vodku", "Anna trinkt vodku"),
        ("the patient is on drug A", "the patient is on drug"),
        ("er trinkt Wein nur in Maßen", "er trinkt Wein nur in Massen"),
        ("no, smoking is allowed", "no smoking is allowed"),
        ("No. Smoking is allowed.", "No smoking is allowed."),
        ("Nein; das Lager ist offen", "Nein das Lager ist offen"),
        ("his answer was: never. deploy on friday", "his answer was never deploy on friday"),
        ("the result of the year is (5,000) euro", "the result of the year is 5,000 euro"),
        ("the interval of all scores is (0, 1)", "the interval of all scores is [0, 1]"),
        ('the pipe of the pump is 5" wide', "the pipe of the pump is 5 wide"),
        ("the count of orders is 5!", "the count of orders is 5"),
        ("the invoice portals need one login each day", "the invoice portal needs one login each day"),
    ],
)
def test_what_differs_in_a_sign_or_a_form_is_two_memories(one: str, other: str) -> None:
    assert junk([item(one), item(other, 1.0)]) == []


@pytest.mark.parametrize(
    "again",
    [
        "The invoice portal needs two-factor login.",
        "“the invoice portal needs two factor login”",
        "the  invoice portal needs two factor\nlogin!",
    ],
)
def test_case_quotes_and_the_end_of_a_sentence_make_no_second_memory(again: str) -> None:
    original, copy = item("the invoice portal needs two factor login"), item(again, 1.0)
    assert [(duplicate.id, duplicate.by) for duplicate in junk([copy, original])] == [(copy.id, original.id)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the gate opens at the noon bell", "gate opens at noon bell"),
        ("Kunden schätzen the new line", "kunden schätzen new line"),
        ("we met at Hague station on monday", "We met at The Hague station on Monday."),
    ],
)
def test_the_alone_makes_no_second_memory(one: str, other: str) -> None:
    assert len(junk([item(one), item(other, 1.0)])) == 1


@pytest.mark.parametrize(
    "filler", ["a", "an", "no", "not", "das", "le", "la", "het", "um", "not the", "just", "nicht", "не", "不", "ليس"]
)
def test_any_other_word_that_is_added_makes_two(filler: str) -> None:
    text = "every valve of pump two stays open at night"
    for place in range(len(text.split())):
        words = text.split()
        longer = " ".join([*words[:place], filler, *words[place:]])
        assert junk([item(text), item(longer, 1.0)]) == []
        assert junk([item(longer, 160.0)], [RecalledMemory([100.0], uuid4(), text)]) == []


@pytest.mark.parametrize(
    ("better", "other"),
    [
        ({"ends": 3600.0}, {}),
        ({"begins": 9000.0}, {}),
        ({"about": "person-1"}, {"about": "person-2"}),
        ({"about": "person-1"}, {}),
        ({"speaker": "Ann"}, {"speaker": "Bob"}),
        ({"details": frozenset({'["gate",4]'})}, {"details": frozenset({'["gate",5]'})}),
        ({"details": frozenset({'["gate",4]'})}, {}),
    ],
)
def test_nothing_ends_for_what_goes_sooner_comes_later_or_says_less(better: dict, other: dict) -> None:
    one, two = item(TEXT, standing=0.9, **better), item(TEXT, standing=0.1, **other)
    assert two.id not in {duplicate.id for duplicate in junk([one, two])}


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("8080", "9090"),
        TEXT.replace("sends", "never sends"),
        TEXT.replace("northern", "southern"),
        f"it is not true that {TEXT}",
        f"until 2027 {TEXT}",
        f"i know that far is {TEXT}",
        f"what i remembered is far, {TEXT}",
        f"{TEXT} i remember",
    ],
)
def test_a_correction_of_what_was_shown_is_no_echo(text: str) -> None:
    assert junk([item(text, 160.0)], [RecalledMemory([100.0], uuid4(), TEXT)]) == []


def test_a_framed_repetition_of_a_shown_text_is_an_echo() -> None:
    for text in (f"what i know is {TEXT}", f"I recall that {TEXT} as noted.", f"I recall that {TEXT}. as noted"):
        [duplicate] = junk([item(text, 160.0)], [RecalledMemory([100.0], uuid4(), TEXT)])
        assert duplicate.kind == "echo", text
        assert junk([item(text, 9000.0)], [RecalledMemory([100.0], uuid4(), TEXT)]) == [], "an hour later"


@pytest.mark.parametrize(
    "shown", [{"ends": 3600.0}, {"about": "person-1"}, {"details": frozenset({"x"})}, {"ends": math.inf}]
)
def test_an_echo_ends_only_for_what_stays_as_long_and_says_all_of_it(shown: dict) -> None:
    echo = item(f"as noted {TEXT}", 160.0, about=str(shown.get("about", "")))
    result = junk([echo], [RecalledMemory([100.0], uuid4(), TEXT, **shown)])
    assert len(result) == (0 if shown.get("ends") == 3600.0 else 1)
    of_no_one = item(f"as noted {TEXT}", 160.0)
    assert len(junk([of_no_one], [RecalledMemory([100.0], uuid4(), TEXT, **shown)])) == len(result), "whose it was"
    of_another = item(f"as noted {TEXT}", 160.0, about="person-2")
    assert junk([of_another], [RecalledMemory([100.0], uuid4(), TEXT, **shown)]) == []
    richer = item(f"as noted {TEXT}", 160.0, details=frozenset({"y"}))
    assert junk([richer], [RecalledMemory([100.0], uuid4(), TEXT, **shown)]) == []


def test_an_instruction_that_is_given_again_holds_again() -> None:
    first, again = item(TEXT, standing=0.9, states=True), item(TEXT, 160.0, states=True, place=(160.0, 0))
    duplicates = junk([first, again], [RecalledMemory([100.0], first.id, TEXT)])
    assert [(entry.id, entry.by) for entry in duplicates] == [(first.id, again.id)]
    low, high = sorted((item(TEXT, states=True), item(TEXT, states=True)), key=lambda each: each.id)
    assert [entry.id for entry in junk([high, low])] == [low.id]
    placed = [item(TEXT, states=True, place=(0.0, position)) for position in (4, 3)]
    assert [entry.id for entry in junk(placed)] == [placed[1].id]
