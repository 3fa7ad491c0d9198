"""Users' own PromQL reads the series of their namespace: every selector gets the matcher, or the query is refused."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from learnloop_operator.adapters.settings import SettingsError, from_environment
from learnloop_operator.core.promql.keywords import FUNCTIONS, RESERVED
from learnloop_operator.core.promql.namespace_scope import OutOfScope, Scope

MATCHER = 'namespace="team-a"'


def scoped(query: str, scope: Scope | None = None) -> str:
    return (scope or Scope()).applied(query, "team-a")


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("up", "up{%}"),
        ("up{}", "up{%}"),
        ('up{job="a",}', 'up{%, job="a",}'),
        ('{__name__=~"a|b"}', '{%, __name__=~"a|b"}'),
        ('{"a.b", c!="d"}', '{%, "a.b", c!="d"}'),
        ("sum by (le) (rate(a_bucket[5m])) / ignoring (le) group_left sum(b)", None),
        ("sum(a) without (x) > bool 2", "sum(a{%}) without (x) > bool 2"),
        ("a * on (x) group_left (y) b", "a{%} * on (x) group_left (y) b{%}"),
        ("a and on () b unless c or d atan2 -e ^ 2", "a{%} and on () b{%} unless c{%} or d{%} atan2 -e{%} ^ 2"),
        ("max_over_time(rate(a[1m])[1h30m:10s] @ end() offset -5m)", None),
        ("a offset 5m @ 1.6e9 + vector(time())", "a{%} offset 5m @ 1.6e9 + vector(time())"),
        ('label_replace(a, "x", "$1", "y", "(.*)")', 'label_replace(a{%}, "x", "$1", "y", "(.*)")'),
        ("a # or b\n+ c", "a{%} # or b\n+ c{%}"),
        ("sum{x='y'}", None),
        ("NaN + Inf + 0x1F + .5e-3 + infinity", "NaN + Inf + 0x1F + .5e-3 + infinity{%}"),
        ("SUM(a) BY (b)", "SUM(a{%}) BY (b)"),
        ("a:b:c", "a:b:c{%}"),
        ("rate", "rate{%}"),
        ('a{b="}", c=\'{\', d=`"`}', 'a{%, b="}", c=\'{\', d=`"`}'),
        ('a{b="x\\"} or up{c=\\""}', 'a{%, b="x\\"} or up{c=\\""}'),
        (f"a{{{MATCHER}}}", f"a{{%, {MATCHER}}}"),
        ('a{namespace=~"team-a"}', 'a{%, namespace=~"team-a"}'),
    ],
)
def test_every_selector_gets_the_matcher_and_nothing_else_changes(query: str, asked: str | None) -> None:
    if asked is None:
        asked = {
            "sum b": "sum by (le) (rate(a_bucket{%}[5m])) / ignoring (le) group_left sum(b{%})",
            "max_o": "max_over_time(rate(a{%}[1m])[1h30m:10s] @ end() offset -5m)",
            "sum{x": "",
        }[query[:5]]
    if not asked:
        with pytest.raises(OutOfScope, match="like an operator"):
            scoped(query)
    else:
        assert scoped(query) == asked.replace("%", MATCHER)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            'a{namespace="team-b"}',
            r'asks for series with namespace="team-b", and may read those with namespace="team-a"',
        ),
        ('a{namespace!="team-b"}', "asks for series with namespace!="),
        ('a{namespace=~"team-a|team-b"}', "asks for series with namespace=~"),
        ('a{namespace=""}', "asks for series with"),
        ("{'namespace'='team-b'}", "asks for series with"),
        (r'{"name\x73pace"="team-b"}', "where a label's name is expected"),
        ("info(a)", "calls 'info', which may read other series than its arguments'"),
        ("RATE(a[5m])", "calls 'RATE'"),
        ("a b", "has 'b' where an operator or the end is expected"),
        ("a{b}", "where =, !=, =~ or !~ is expected"),
        ('a{b="c" or d="e"}', "has 'or d=\"e\"}' where ',' is expected"),
        ("and and and", "has 'and and and' where a metric"),
        ("bool{a='b'}", "where a metric"),
        ("avg", "a metric named 'avg' like an operator"),
        ("a[5m", r"cannot be read at '\[5m'"),
        ("a{b='c", 'cannot be read at "\'c"'),
        ("a\u00a0+ b", "cannot be read at"),
        ("äpfel", "cannot be read at"),
        ("a;b", "cannot be read at ';b'"),
        ("sum(", "has its end where a metric"),
        ("", "has its end where a metric"),
        ("(" * 40 + "a" + ")" * 40, "more than 32 brackets"),
        ("with (x = up) x", "calls 'with'"),
        ("a{}{}", "where an operator or the end"),
        ("$other", "cannot be read at '\\$other'"),
    ],
)
def test_what_reads_others_series_or_is_not_understood_is_refused_with_its_place(query: str, said: str) -> None:
    with pytest.raises(OutOfScope, match=said):
        scoped(query)


LONG = [
    "1" * 4_000 + "x",
    "1m" * 2_000 + "x",
    "[5m:" + " " * 4_000,
    "[" + "5m" * 2_000,
    "a" * 4_000 + "$",
    "'\\a" * 1_300,
]


@pytest.mark.parametrize("query", LONG, ids=[query[:6] for query in LONG])
def test_a_long_query_is_refused_in_time_that_grows_with_its_length(query: str) -> None:
    """Against a query of the same length that is read, so that the machine's speed does not matter."""

    def seconds(text: str) -> float:
        begun = time.thread_time()
        for _ in range(5):
            with suppress(OutOfScope):
                scoped(text)
        return time.thread_time() - begun

    assert min(seconds(query) for _ in range(3)) < 5 * min(seconds("-" * 4_000) for _ in range(3))


def test_a_cluster_wide_scope_asks_what_was_written() -> None:
    assert scoped('a{namespace="team-b"}', Scope(cluster=True)) == 'a{namespace="team-b"}'


def test_the_label_may_have_another_name() -> None:
    assert scoped('a{namespace="x"}', Scope("exported_namespace")) == 'a{exported_namespace="team-a", namespace="x"}'
    with pytest.raises(OutOfScope, match="exported_namespace"):
        scoped('a{exported_namespace="x"}', Scope("exported_namespace"))


def test_a_label_or_a_namespace_that_could_change_the_query_is_refused() -> None:
    with pytest.raises(ValueError, match="is no label name"):
        Scope('a"}')
    with pytest.raises(OutOfScope, match="is no namespace"):
        Scope().applied("up", 'a"} or up{b="')


def test_the_operator_reads_its_scope_from_the_environment() -> None:
    assert from_environment({}).query_scope == Scope("namespace")
    given = {"LEARNLOOP_QUERY_SCOPE": "cluster", "LEARNLOOP_QUERY_NAMESPACE_LABEL": "ns"}
    assert from_environment(given).query_scope == Scope("ns", cluster=True)
    with pytest.raises(SettingsError, match="LEARNLOOP_QUERY_SCOPE is 'all': set namespace or cluster"):
        from_environment({"LEARNLOOP_QUERY_SCOPE": "all"})
    assert from_environment({"LEARNLOOP_QUERY_POD_LABEL": ""}).query_scope == Scope(pod_label="")
    with pytest.raises(SettingsError, match="LEARNLOOP_QUERY_POD_LABEL is 'a-b'"):
        from_environment({"LEARNLOOP_QUERY_POD_LABEL": "a-b"})
    with pytest.raises(SettingsError, match="LEARNLOOP_QUERY_NAMESPACE_LABEL is 'a-b'"):
        from_environment({"LEARNLOOP_QUERY_NAMESPACE_LABEL": "a-b"})


# Expressions as pairs: what somebody writes, with § where a selector must get the matcher alone and ¶ where it must get
# the matcher before others.
LABELS = st.sampled_from(["a", "le", "job_1", '"x.y"'])
VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters='"\\\n§¶'), max_size=12).map(lambda text: f'"{text}"'),
    st.sampled_from(["'it is \"quoted\"'", '"} or up{b=\\""', "`\\`", "'#'", '"}"', "'\\\\'"]),
)
SPACE = st.sampled_from(["", " ", "\n", "\t", " # up{} or up\n"])
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_:]{0,6}", fullmatch=True).filter(lambda name: name.lower() not in RESERVED)
ITEMS = st.builds(lambda label, op, value: label + op + value, LABELS, st.sampled_from(["=", "!=", "=~", "!~"]), VALUES)
BRACES = st.lists(ITEMS, max_size=3).map(lambda items: "{¶" + ", ".join(items) + "}" if items else "{§}")
SELECTORS = st.one_of(
    st.builds(lambda name, gap: f"{name}«§»{gap}", NAMES, SPACE), st.builds(str.__add__, NAMES, BRACES), BRACES
)
SPANS = st.sampled_from(["5m", "1h30m", "100ms", "90s"])
NUMBERS = st.sampled_from(["1", ".5", "2e3", "0x1f", "NaN", "-Inf", "1e-2"])
SIGNS = ["+", "-", "*", "/", "%", "^", "==", "!= bool", "<", ">=", "and", "or", "unless", "ATAN2"]
JOINS = ["", "on (a)", "ignoring (a, b)", "on (a) group_left", "on () group_right (b,)"]


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    ranges = st.builds(lambda selector, span: f"{selector}[{span}]", SELECTORS, SPANS)
    return st.one_of(
        st.builds(
            lambda a, op, join, b: f"{a} {op} {join} {b}", inner, st.sampled_from(SIGNS), st.sampled_from(JOINS), inner
        ),
        st.builds(lambda a, gap: f"({gap}{a})", inner, SPACE),
        st.builds(lambda f, a: f"{f}({a})", st.sampled_from(["rate", "increase", "last_over_time"]), ranges),
        st.builds(lambda a, span: f"max_over_time(({a})[{span}:])", inner, SPANS),
        st.builds(lambda f, a: f"{f}({a})", st.sampled_from(sorted(FUNCTIONS)), inner),
        st.builds(lambda a: f"SUM by (x, y) ({a})", inner),
        st.builds(lambda a: f"topk(3, {a}) without (x)", inner),
        st.builds(lambda a: f"-{a} offset -5m @ start()", SELECTORS),
    )


EXPRESSIONS = st.recursive(st.one_of(SELECTORS, NUMBERS), larger, max_leaves=8)


@given(EXPRESSIONS)
@example("rate«§»")
def test_no_selector_of_any_expression_is_without_the_matcher(expression: str) -> None:
    written = expression.replace("«§»", "").replace("§", "").replace("¶", "")
    asked = expression.replace("«§»", f"{{{MATCHER}}}").replace("§", MATCHER).replace("¶", f"{MATCHER}, ")
    assert scoped(written) == asked


PIECES = st.sampled_from(
    ["up", "a:b", "sum", "by", "and", "bool", "on", "offset", "rate", "info", "start", "inf", "group_left"]
    + ["(", ")", "{", "}", "[", "]", "[5m]", "[5m:]", ",", "=", "=~", "==", "!=", "+", "-", "@", ":", "5m", "1", "."]
    + ['"', "'", "`", "\\", "#", "\n", " ", '"x"', "namespace", '="team-a"', '="team-b"', "ä", "\0", "$x", "a=", "\r"]
)
STRINGS = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`|#[^\r\n]*")
LISTS = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", re.IGNORECASE)
WORDS = re.compile(r"(?<![A-Za-z0-9_:])([A-Za-z_:][A-Za-z0-9_:]*)\s*([({]?)")


@given(st.lists(PIECES, max_size=14).map("".join))
@example("up{}[5m:1m] offset 5m")
@example("sum(up) by (job) + rate(start[5m]) # up")
def test_whatever_is_written_is_refused_or_reads_only_the_own_namespace(query: str) -> None:
    try:
        asked = scoped(query)
    except OutOfScope:
        return
    # By other means than the reader's: without strings and lists of labels each brace begins with the matcher, and
    # each word has a brace, is called, or is one of the language's own.
    bare = LISTS.sub("", STRINGS.sub('""', asked))
    braces = re.findall(r"\{([^}]*)\}", bare)
    assert all(each.startswith('namespace=""') for each in braces), asked
    assert len(braces) == bare.count("{") == asked.count(MATCHER) - query.count(MATCHER), asked
    for word, after in WORDS.findall(re.sub(r"\{[^}]*\}", "{}", bare)):
        assert after or word.lower() in RESERVED, asked
    assert scoped(asked), "what was asked could be written"
