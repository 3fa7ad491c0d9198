"""Finding duplicates takes little work, and finds what comparing each with each finds."""

import time
from uuid import uuid4

from hypothesis import given, strategies as st

from learnloop_dataplane.lifecycle.duplicates import Comparison, Item, RecalledMemory, Superfluous
from learnloop_dataplane.stems import normalised

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
        fixed=draw(st.booleans()),
        begins=draw(st.sampled_from((0.0, 0.0, 50.0))),
        ends=draw(st.sampled_from((100.0, 200.0))),
        about=draw(st.sampled_from(("", "", "ada"))),
        details=draw(st.frozensets(st.sampled_from(DETAILS), max_size=2)),
    )


def junk(items: list[Item], recalled: list[RecalledMemory] | None = None) -> list[Superfluous]:
    comparison = Comparison(recalled or [])
    for start in range(0, len(items), 3):
        comparison.read(items[start : start + 3])
    return comparison.junk()


def each_with_each(items: list[Item]) -> set[object]:
    """The rule as it reads, at the price of a square."""
    ranked = sorted(items, key=lambda one: (one.begins, -one.ends, not one.fixed, -one.standing, one.created, one.id))
    staying: list[Item] = []
    gone: set[object] = set()
    for item in ranked:
        if not item.fixed and any(says_the_same(other, item) for other in staying):
            gone.add(item.id)
        else:
            staying.append(item)
    return gone


def says_the_same(other: Item, item: Item) -> bool:
    return (
        bool(normalised(item.text))
        and (other.memory_type, other.about) == (item.memory_type, item.about)
        and item.details == other.details
        and other.begins <= item.begins
        and other.ends >= item.ends
        and normalised(item.text) == normalised(other.text)
    )


@given(st.lists(memories(), max_size=20), st.lists(st.sampled_from(range(20)), max_size=6))
def test_what_is_found_is_what_comparing_each_with_each_finds(items: list[Item], again: list[int]) -> None:
    copies = [items[place] for place in again if place < len(items)]
    items += [Item(**(vars(one) | {"id": uuid4(), "fixed": False})) for one in copies]
    pairs = junk(items)
    assert {entry.id for entry in pairs} == each_with_each(items)
    by_id = {item.id: item for item in items}
    for entry in pairs:
        assert says_the_same(by_id[entry.by], by_id[entry.id])
        assert entry.by not in {other.id for other in pairs}


def test_similar_texts_take_linear_time() -> None:
    def seconds_for_each(count: int) -> float:
        beginning = "the run of the nightly import into the billing database of tenant one ended well"
        texts = [f"{beginning} {'again ' * (number % 200)}" for number in range(count)]
        recalled = [RecalledMemory([8.0], uuid4(), text, 0.0) for text in texts]
        items = [Item(uuid4(), "semantic", text, 9.0, 0.5) for text in texts]
        started = time.process_time()
        junk(items, recalled)
        return (time.process_time() - started) / count

    seconds_for_each(200)
    assert seconds_for_each(2000) < 5 * seconds_for_each(200)
