"""From a text to the terms by which it is searched: words without stop words, by their stems. Pure.

Stems are Snowball's (Porter, 2001), by PyStemmer. In English only words of ASCII letters are stemmed, and stop words
are left out only of a text that has other words: a text in another language loses next to nothing. Scripts that put no
spaces between words are cut into overlapping pairs of characters, as Lucene does.
"""

import re

import Stemmer

from learnloop_dataplane.text.tokenizer import words

NONE = "none"
LANGUAGES = (NONE, *sorted(Stemmer.algorithms()))
MOST_KEPT = 50_000  # words whose stems the library keeps
# Han, kana, Thai, Lao, Myanmar and Khmer: letters without spaces between the words.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
# The closed classes of English: articles, pronouns, auxiliaries, prepositions, conjunctions, question words, and what
# an apostrophe leaves of them.
_CLOSED_CLASSES = """
a an the this that these those some any such own same other both each few more most all only
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
who whom whose which what when where why how
am is are was were be been being do does did doing done have has had having
will would shall should can could may might must
and or but if then than so as because while of at by for from in into on onto to up down with without
about over under again off out not no nor here there just too very also
s t d ll m re ve don didn doesn isn wasn weren won wouldn couldn shouldn hasn haven hadn ain aren
"""
ENGLISH_STOP_WORDS = frozenset(_CLOSED_CLASSES.split())


class Analyzer:
    """Cuts texts into terms; `name` is kept with what was cut by it: terms of two analyzers are never compared.

    Args:
        language: `none`, or one for which Snowball has a stemmer; stop words are known in English alone.

    Raises:
        ValueError: Snowball has no stemmer for it.
    """

    def __init__(self, language: str = "english") -> None:
        if language not in LANGUAGES:
            raise ValueError(f"unknown language {language!r}: name one of {', '.join(LANGUAGES)}")
        self.name = f"{language}-2"
        self._stop = ENGLISH_STOP_WORDS if language == "english" else frozenset()
        self._ascii_only = language == "english"
        self._stemmer = None if language == NONE else Stemmer.Stemmer(language, MOST_KEPT)

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in order; of a text of stop words alone, their stems.

        Each term has at most 64 characters.
        """
        tokens = words(text)
        if not text.isascii():
            tokens = [part for token in tokens for part in _cut(token)]
        rest = [token for token in tokens if token not in self._stop] or tokens
        return [self._stem(token) for token in rest]

    def _stem(self, word: str) -> str:
        if self._stemmer is None or (self._ascii_only and not word.isascii()):
            return word
        return str(self._stemmer.stemWord(word)) or word


def _cut(token: str) -> list[str]:
    if not _UNSPACED.search(token):
        return [token]
    parts, last = [], 0
    for run in _UNSPACED.finditer(token):
        parts += [token[last : run.start()]] if run.start() > last else []
        text = run.group()
        parts += [text[i : i + 2] for i in range(len(text) - 1)] or [text]
        last = run.end()
    return parts + ([token[last:]] if last < len(token) else [])
