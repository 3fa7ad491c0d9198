"""Work on a batch equals work on each item: vectors, ids, and fields that redaction skips."""

import os

from hypothesis import given, strategies as st

from learnloop_common.redaction.rules import RULES, rules_for
from learnloop_dataplane.postgres.database import uuid7
from learnloop_dataplane.stems import Analyzer

terms = Analyzer().terms

TEXT = st.lists(st.sampled_from(["red", "fox", "a", "Straße", "n17", "", "jumps"]) | st.text(max_size=6), max_size=12)

PARTS = [
    "@",
    ":",
    "=",
    "-",
    "_",
    "eyJ",
    "bearer",
    "Basic",
    "PASS",
    "pwd",
    "paſs",
    "baısic",
    "sk-",
    "AKIA",
    "ASIA",
    "ghp_",
    "_pat_",
    "glpat",
    "xox",
    "AIza",
    "hf_",
    "SG.",
    "ya29.",
    "xapp-",
    "pypi-",
    "dop_v1_",
    "://",
    ".example",
    "%40",
    "authorization",
    "Authorı",
    "to\u212aen is ",
    "\u017fecret: '",
    "a1B2" * 16,
]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=6).map("".join))
def test_a_rule_that_is_passed_over_would_have_matched_nowhere(text: str) -> None:
    passed_over = [rule for rule in RULES if rule not in rules_for(text)]
    assert [rule for rule in passed_over if rule.pattern.search(text)] == []


def test_ids_are_in_the_order_of_time_and_differ_in_a_forked_process() -> None:
    ids = [uuid7() for _ in range(10_000)]
    assert sorted(ids, key=lambda identity: identity.bytes) == ids
    assert len(set(ids)) == 10_000
    assert {identity.version for identity in ids} == {7}
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, uuid7().bytes)
        os._exit(0)
    os.wait()
    with open(reading, "rb", buffering=0) as pipe:
        assert pipe.read(16)[8:] != uuid7().bytes[8:]
    os.close(writing)
