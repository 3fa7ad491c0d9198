"""Texts become the terms they are searched by: stems, whole words or pairs of characters elsewhere."""

import os
import unicodedata
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from learnloop_common.settings import ConfigurationError
from learnloop_dataplane.config import Config
from learnloop_dataplane.stems import LANGUAGES, NONE, Analyzer, words

ENV = {"LEARNLOOP_DSN": "postgresql://x/y", "LEARNLOOP_ARTIFACTS": "file:///tmp/x"}


def test_inflections_of_an_english_word_are_one_term_and_stop_words_are_none() -> None:
    terms = Analyzer().terms
    assert terms("When did Caroline go camping with her families?") == ["carolin", "go", "camp", "famili"]
    assert terms("Caroline camped with a family") == ["carolin", "camp", "famili"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("STRASSE", "Straße"),
        ("istanbul", "İstanbul"),
        (unicodedata.normalize("NFD", "Möbel, Ångström, Việt Nam"), "Möbel, Ångström, Việt Nam"),
        (unicodedata.normalize("NFD", "हिन्दी में लिखो"), "हिन्दी में लिखो"),
        (unicodedata.normalize("NFD", "한국어 교실"), "한국어 교실"),
        ("Ｇａｔｅ ４２", "gate 42"),
        ("ｶﾞｽ", "ガス"),
        ("كَتَبَ الوَلَدُ", "كتب الولد"),
        ("כָּתַב הַיֶּלֶד", "כתב הילד"),
        ("ΟΔΟΣ", "οδος"),
        ("ﬁle", "file"),
        ("می‌خواهم", "میخواهم"),
        ("soft­ware", "software"),
    ],
)
def test_a_word_is_found_however_it_is_written(one: str, other: str) -> None:
    assert Analyzer().terms(one) == Analyzer().terms(other)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("दिल", ["दिल"]),
        ("दाल, दूल।", ["दाल", "दूल"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("Tiếng Việt", ["tiếng", "việt"]),
        ("naïve_café-Ünal", ["naïve", "café", "ünal"]),
        ("❤️ любовь", ["любовь"]),
    ],
)
def test_marks_belong_to_words(text: str, terms: list[str]) -> None:
    assert Analyzer(NONE).terms(text) == terms


def test_a_script_without_spaces_is_cut_into_pairs_of_characters() -> None:
    terms = Analyzer().terms
    assert terms("我喜欢北京烤鸭") == ["我喜", "喜欢", "欢北", "北京", "京烤", "烤鸭"]
    assert set(terms("北京")) <= set(terms("他住在北京市"))
    assert terms("版本v2号") == ["版本", "v2", "号"]


@given(st.text(max_size=200), st.sampled_from(LANGUAGES))
def test_any_text_with_a_word_has_a_term_and_none_is_longer_than_its_word_may_be(text: str, language: str) -> None:
    terms = Analyzer(language).terms(text)
    assert bool(terms) == bool(words(text))
    assert all(0 < len(term) <= 64 for term in terms)
    assert terms == Analyzer(language).terms(text)


def test_a_language_without_a_stemmer_is_refused_with_those_that_have_one() -> None:
    refused = pytest.raises(ConfigurationError, match=r"LEARNLOOP_LANGUAGE: 'klingon'.*none.*english")
    with patch.dict(os.environ, ENV | {"LEARNLOOP_LANGUAGE": "klingon"}), refused:
        Config.read()
    with patch.dict(os.environ, ENV):
        assert Config.read().language == "english"
    with patch.dict(os.environ, ENV | {"LEARNLOOP_LANGUAGE": "german"}):
        assert Config.read().language == "german"
