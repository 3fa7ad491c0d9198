"""Finding duplicates takes little work, and finds what comparing each with each finds."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.lifecycle.duplicates import Effort, Item, Told, duplicates, echoes
from learnloop_dataplane.text.redundancy import said

WORDS = ("the", "depot", "lamp", "lamps", "gate", "opens", "not", "4", "5", "at", "noon")
DETAILS = ('["gate",4]', '["gate",5]', '["floor",1]')


@st.composite
def memories(draw: st.DrawFn) -> Item:
    return Item(
        uuid4(),
        draw(st.sampled_from(("semantic", "episodic"))),
        " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=8))),
        draw(st.floats(0, 9)),
        draw(st.sampled_from((0.1, 0.9))),
        pinned=draw(st.booleans()),
        distilled=draw(st.booleans()),
        begins=draw(st.sampled_from((0.0, 0.0, 50.0))),
        ends=draw(st.sampled_from((100.0, 200.0))),
        about=draw(st.sampled_from(("", "", "ada"))),
        details=draw(st.frozensets(st.sampled_from(DETAILS), max_size=2)),
    )


def each_with_each(items: list[Item]) -> dict[object, object]:
    """The rule as it reads, at the price of a square."""
    ranked = sorted(
        items,
        key=lambda one: (
            *(-one.pinned, one.begins, -one.ends, -len(one.details), -one.standing, one.created),
            one.id.bytes,
        ),
    )
    kept: list[Item] = []
    found: dict[object, object] = {}
    for item in ranked:
        twins = [other for other in kept if says_all_of(other, item)]
        if twins and not item.pinned and not item.distilled:
            found[item.id] = twins[0].id
        else:
            kept.append(item)
    return found


def says_all_of(other: Item, item: Item) -> bool:
    return (
        bool(said(item.text))
        and (other.memory_type, other.about) == (item.memory_type, item.about)
        and other.begins <= item.begins
        and other.ends >= item.ends
        and other.details >= item.details
        and said(item.text) == said(other.text)
    )


@given(st.lists(memories(), max_size=20), st.lists(st.sampled_from(range(20)), max_size=6))
def test_what_is_found_is_what_comparing_each_with_each_finds(items: list[Item], again: list[int]) -> None:
    copies = [items[place] for place in again if place < len(items)]
    items += [Item(**(vars(one) | {"id": uuid4(), "pinned": False, "distilled": False})) for one in copies]
    assert {entry.id: entry.by for entry in duplicates(items)} == each_with_each(items)


def test_thousands_of_texts_of_one_template_take_hardly_any_comparisons() -> None:
    template = "the run of the nightly import into the billing database of tenant {} ended with {} after {} retries"
    ends = ("success", "failure", "a timeout")
    texts = [template.format(f"tenant{index}", ends[index % 3], index % 7) for index in range(5000)]
    same = [Item(uuid4(), "semantic", text, 1.0, 0.5) for text in texts[:50]]
    effort = Effort(comparisons=5000)
    found = duplicates([*(Item(uuid4(), "semantic", text, 0.0, 0.5) for text in texts), *same], effort)
    assert {entry.id for entry in found} == {one.id for one in same}
    assert not effort.left


def test_one_text_with_other_fields_each_time_takes_hardly_any_comparisons() -> None:
    items = [
        Item(uuid4(), "semantic", "the probe of the depot failed", 0.0, 0.5, details=frozenset({f'["at",{at}]'}))
        for at in range(3000)
    ]
    effort = Effort(comparisons=3000)
    assert duplicates(items, effort) == []
    assert not effort.left


def test_those_for_which_the_comparisons_do_not_suffice_stay_and_are_counted() -> None:
    texts = ["the depot opens at noon", "the depot opens at noon", "the lamp of the depot is broken"]
    items = [Item(uuid4(), "semantic", text, float(index), 0.5) for index, text in enumerate(texts)]
    effort = Effort(comparisons=0)
    assert duplicates(items, effort) == []
    assert len(effort.left) == 1, "the third has nobody to be compared with"


def test_an_echo_for_which_the_comparisons_do_not_suffice_stays_and_is_counted() -> None:
    text = "the customer prefers invoices by letter and not by mail"
    items, recalled = [Item(uuid4(), "semantic", text, 9.0, 0.5)], [Told(8.0, uuid4(), text)]
    effort = Effort(comparisons=0)
    assert (echoes(items, recalled, effort=effort), effort.left) == ([], {items[0].id})
    assert len(echoes(items, recalled)) == 1


def test_thousands_of_texts_of_the_template_that_was_shown_are_compared_with_none_of_them() -> None:
    template = "the run of the nightly import into the billing database of tenant one ended well as number {}"
    recalled = [Told(8.0, uuid4(), template.format(number)) for number in range(500)]
    items = [Item(uuid4(), "semantic", template.format(number), 9.0, 0.5) for number in range(1000, 3000)]
    effort = Effort(comparisons=0)
    assert echoes(items, recalled, effort=effort) == []
    assert not effort.left
