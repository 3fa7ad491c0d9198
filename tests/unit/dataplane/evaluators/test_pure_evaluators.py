"""Evaluators that look at the output alone: what they score, and that nothing an agent sends hangs or breaks them."""

import asyncio
import resource
import threading
import time
from typing import get_args

import pytest

from learnloop_api.kinds.evaluators import SETTINGS, Evaluator, EvaluatorType
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators import code_checks as code_module
from learnloop_dataplane.evaluators.all_evaluators import EVALUATORS, score
from learnloop_dataplane.evaluators.evaluator import Case, Score, Tools


async def scored(output, expected=None, **spec) -> Score:
    return await score(Evaluator.model_validate(spec), Case(output=output, expected=expected), Tools())


def test_every_evaluator_that_the_api_server_accepts_is_registered_once() -> None:
    assert set(get_args(EvaluatorType)) == set(EVALUATORS) == set(SETTINGS)


@pytest.mark.parametrize(
    ("output", "expected", "settings", "value"),
    [
        ("Paris", " Paris\n", {}, 1.0),
        ("paris", "Paris", {}, 0.0),
        ("paris", "Paris", {"ignoreCase": True}, 1.0),
        ("a  b", "a b", {"ignoreSpace": False}, 0.0),
        ({"b": [1, 2], "a": "x"}, {"a": "x", "b": [1, 2]}, {}, 1.0),
        ([True], [1], {}, 0.0),
    ],
)
async def test_an_exact_match_is_1_and_anything_else_0(output, expected, settings, value: float) -> None:
    assert (await scored(output, expected, type="exact", exact=settings)).value == value


async def test_similar_words_and_characters_give_a_share() -> None:
    sentence = "the cat sat on the mat"
    assert (await scored(sentence, sentence.upper(), type="fuzzy")).value == 1.0
    assert (await scored("the cat", sentence, type="fuzzy")).value == pytest.approx(2 * 2 / (2 + 6))
    by_characters = {"type": "fuzzy", "fuzzy": {"measure": "characters"}}
    assert (await scored("kitten", "sitting", **by_characters)).value == pytest.approx(1 - 3 / 7)
    strict = await scored("kitten", "sitting", type="fuzzy", fuzzy={"measure": "characters", "atLeast": 0.9})
    assert (strict.value, strict.note) == (0.0, "0.571 similar by characters, 0.9 needed")


async def test_a_long_text_is_not_right_by_its_beginning() -> None:
    """Nor wrong by two places that lie far from one another."""
    by_characters = {"type": "fuzzy", "fuzzy": {"measure": "characters"}}
    text = "the_order_has_left_the_house;" * 200
    longer = await scored(text[:4096] + "#" * 20_000, text[:4096], **by_characters)
    assert longer.value == pytest.approx(4096 / 24_096)
    result = await scored("#" + text[1:-1] + "!", text, **by_characters)
    assert result.value == pytest.approx(1 - 2 / len(text))
    assert (await scored(text + text, text + text, **by_characters)).value == 1.0


async def test_texts_too_long_to_be_compared_by_characters_say_so() -> None:
    by_characters = {"type": "fuzzy", "fuzzy": {"measure": "characters"}}
    started = time.process_time()
    assert (await scored("ab" * 16_384, "ba" * 16_384, **by_characters)).value is not None
    assert time.process_time() - started < 5.0
    result = await scored("ab" * 100_000, "ba", **by_characters)
    assert (result.value, result.note) == (None, "more than 32768 characters: compare by words")
    assert (await scored("a" * 300_000, "b", type="fuzzy")).value is None


@pytest.mark.parametrize(
    ("output", "expected", "value"),
    [
        (42, "42", 1.0),
        ("So the answer is 1,234.5.", 1234.5, 1.0),
        ("first 3, then 4", 4, 1.0),
        ("none at all", 4, 0.0),
        (True, 1, 0.0),
        (10**400, 1, 0.0),
        ("9" * 100_000, 1, 0.0),
        (4.04, 4, 1.0),
        (4.2, 4, 0.0),
        ("x", "y", None),
        ("The share is .5", 0.5, 1.0),
        ("The share is .5", 5, 0.0),
        ("-.5", -0.5, 1.0),
        ("It fell by \N{MINUS SIGN}3", -3, 1.0),
        ("It fell by \N{MINUS SIGN}3", 3, 0.0),
        ("2e\N{MINUS SIGN}2", 0.02, 1.0),
        ("see version 1.2.3", 3, 1.0),
        ("It is GPT-4", 4, 1.0),
        ("see pages 3-5", 5, 1.0),
        ("between 10%-15%", 15, 1.0),
        ("3--5", 5, 1.0),
        ("5\N{MINUS SIGN}3", 3, 1.0),
        ("on 2026-11-27", 27, 1.0),
        ("f(3)-4", 4, 1.0),
        ("x = -4", -4, 1.0),
        ("x=-4", -4, 1.0),
        ("(-4)", -4, 1.0),
        ("**-4**", -4, 1.0),
        ("$-4$", -4, 1.0),
        ("\\boxed{-4}", -4, 1.0),
        ("3 - -4", -4, 1.0),
        ("-4", -4, 1.0),
        ("answer:\n-4", -4, 1.0),
        ("covid-.5", 0.5, 1.0),
        ("温度是-5度", -5, 1.0),
        ("答案：-5", -5, 1.0),
        ("“-5”", -5, 1.0),
        ("→-5", -5, 1.0),
        ("Квартира-5", 5, 1.0),
    ],
)
async def test_a_number_within_the_tolerance_is_right(output, expected, value: float | None) -> None:
    assert (await scored(output, expected, type="numeric", numeric={"relative": 0.02})).value == value


SCHEMA = '{"type": "object", "required": ["city"], "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}}}'


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ({"city": "Rome"}, 1.0),
        ('```json\n{"city": "Rome"}\n```', 1.0),
        ('{"city": "rome"}', 0.0),
        ("no JSON", 0.0),
        ("[" * 200_000, 0.0),
    ],
)
async def test_json_is_judged_by_its_schema(output, value: float) -> None:
    assert (await scored(output, type="json-schema", jsonSchema={"schema": SCHEMA})).value == value


@pytest.mark.parametrize(
    "schema",
    ['{"type": "wrong"}', "no JSON", "[]", '{"$ref": "http://169.254.169.254/latest"}', '{"pattern": "(a)\\\\1"}'],
)
def test_a_schema_that_is_none_or_reaches_out_is_refused_when_it_is_published(schema: str) -> None:
    spec = Evaluator.model_validate({"type": "json-schema", "jsonSchema": {"schema": schema}})
    with pytest.raises(Invalid) as refused:
        EVALUATORS["json-schema"].check(spec)
    assert (refused.value.field, refused.value.value) == ("jsonSchema.schema", schema)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
async def test_a_pattern_that_makes_others_backtrack_for_days_answers_at_once(pattern: str) -> None:
    started = time.process_time()
    assert (await scored("a" * 100_000 + "!", type="regex", regex={"pattern": pattern})).value == 0.0
    assert time.process_time() - started < 5.0


async def test_a_pattern_is_found_or_absent() -> None:
    assert (await scored("Total: 12 EUR", type="regex", regex={"pattern": r"(?i)total: \d+"})).value == 1.0
    assert (await scored("I cannot help", type="regex", regex={"pattern": "cannot", "absent": True})).value == 0.0


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(", "(?:a{1000}){1000}"])
def test_a_pattern_that_this_engine_has_not_is_refused_when_it_is_published(pattern: str) -> None:
    spec = Evaluator.model_validate({"type": "regex", "regex": {"pattern": pattern}})
    with pytest.raises(Invalid, match="without look-around and back-references"):
        EVALUATORS["regex"].check(spec)


CLEAN = "def double(number: int) -> int:\n    return 2 * number\n"


async def test_code_is_linted_and_never_run(tmp_path) -> None:
    assert (await scored(CLEAN, type="linter")).value == 1.0
    trap = tmp_path / "ran"
    dirty = f"import os, sys\nopen({str(trap)!r}, 'w')\nx = None == sys\n"
    result = await scored(dirty, type="linter", linter={"tolerance": 2.0})
    assert 0.0 <= result.value < 1.0
    assert not trap.exists()
    assert (await scored("def (", type="linter")).value == 0.0
    assert (await scored("# nothing\n\n", type="linter")).value == 0.0


async def test_no_comment_and_no_padding_buys_a_cleaner_score() -> None:
    dirty = "import os\nimport sys\n"
    plain = await scored(dirty, type="linter", linter={"tolerance": 4.0})
    excused = "# ruff: noqa\n" + "".join(f"{line}  # noqa\n" for line in dirty.splitlines()) + "# more\n\n" * 100
    assert (await scored(excused, type="linter", linter={"tolerance": 4.0, "select": ["F"]})).value == plain.value


PADDING = {
    "documentation": '"""' + "word\n" * 500 + '"""\n',
    "texts": '"pad"\n' * 500,
    "ellipses": "...\n" * 500,
    "passes": "pass\n" * 500,
}


@pytest.mark.parametrize("padding", PADDING)
async def test_nothing_that_does_nothing_buys_a_cleaner_score(padding: str) -> None:
    dirty = "import os\nimport sys\n"
    plain = await scored(dirty, type="linter", linter={"tolerance": 4.0, "select": ["F"]})
    padded = await scored(PADDING[padding] + dirty, type="linter", linter={"tolerance": 4.0, "select": ["F"]})
    assert plain.value == padded.value == 0.75
    assert (await scored(PADDING[padding], type="linter", linter={"select": ["F"]})).value == 0.0


async def test_one_statement_over_many_lines_is_one() -> None:
    long = "import os\nx = (\n" + "1\n+ " * 300 + "1)\n"
    result = await scored(long, type="linter", linter={"tolerance": 4.0, "select": ["F"]})
    assert result.value == 1 - 1 / 2 / 4


async def test_no_comment_keeps_imports_from_being_looked_at() -> None:
    dirty = "import sys\nimport os\n"
    plain = await scored(dirty, type="linter", linter={"tolerance": 4.0, "select": ["I"]})
    assert plain.value < 1.0
    for comment in ("# isort: skip_file", "#isort:off", "# ruff: isort: skip_file"):
        excused = await scored(f"{comment}\n{dirty}", type="linter", linter={"tolerance": 4.0, "select": ["I"]})
        assert excused.value == plain.value


async def test_no_more_code_is_read_at_a_time_than_linters_run(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set[int]()

    def counted(_: str) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.2)
        threads.discard(threading.get_ident())
        return 1 + 1000 * (len(threads) >= code_module.AT_ONCE)

    monkeypatch.setattr(code_module, "statements_in", counted)
    done = await asyncio.gather(*(scored(CLEAN, type="linter") for _ in range(6)))
    assert {one.note for one in done} == {"0 findings in 1 statements"}


@pytest.mark.parametrize("code", ["a;" * 130_000, "(" * 260_000, "[" * 260_000], ids=["findings", "depth", "stack"])
async def test_code_that_costs_a_linter_gigabytes_takes_little_memory_and_ends(code: str) -> None:
    before, others = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    result = await scored(code, type="linter")
    assert result.value in (None, 0.0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    # The largest child of all tests so far: those before may have had a larger one.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(others, 256 * 1024)


async def test_what_is_missing_is_no_zero() -> None:
    assert (await scored(None, "x", type="exact")).value is None
    assert (await scored("x", None, type="exact")).value is None
    spec = Evaluator.model_validate({"type": "exact", "taskTypes": ["math"]})
    assert (await score(spec, Case(output="x", expected="x", task_type="prose"), Tools())).value is None
    assert (await score(spec, Case(output="x", expected="x", task_type="math"), Tools())).value == 1.0


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "exact", "fuzzy": {}},
        {"type": "regex"},
        {"type": "reward-model"},
        {"type": "reward-model", "rewardModel": {"sha256": "x"}},
    ],
)
def test_settings_of_another_type_and_missing_ones_are_refused(spec: dict) -> None:
    with pytest.raises(ValueError, match=r"remove it|needs it|sha256"):
        Evaluator.model_validate(spec)
