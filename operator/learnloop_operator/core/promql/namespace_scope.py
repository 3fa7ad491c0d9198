"""A user's query made to read its own namespace's series only: a matcher goes into every selector.

The expression is parsed as far as it takes to know every selector for certain, and is otherwise left as it was written.
What is not understood is refused: a word that is taken for something else here than in Prometheus must never be a way
to the series of others.
"""

import re
from dataclasses import dataclass

from learnloop_operator.core.promql.keywords import (
    AGGREGATIONS,
    FUNCTIONS,
    GROUPING,
    JOINING,
    MATCHING,
    NUMBERS,
    RESERVED,
    SET_OPERATORS,
)
from learnloop_operator.core.promql.tokenizer import Token, UnreadableQuery, excerpt, tokens

POD_LABEL = "pod"
DEEPEST = 32
"""Brackets within brackets."""
_OPERATORS = frozenset(("+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">="))
_MATCHES = frozenset(("=", "!=", "=~", "!~"))
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class OutOfScope(ValueError):
    """The query asks for more than it may, or cannot be kept to what it may; the message says what and why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series the queries of a ModelDeployment may read: those whose label `label` is its namespace, or, with
    `cluster`, all that the operator may."""

    label: str = "namespace"
    cluster: bool = False
    pod_label: str = POD_LABEL
    """By which series belong to a pod, in what the operator itself asks of policy servers; "": it asks for none."""

    def __post_init__(self) -> None:
        for label in (self.label, *([self.pod_label] if self.pod_label else [])):
            if not is_label(label):
                raise ValueError(f"{label!r} is no label name: letters, digits and _, and no digit first")

    def applied(self, query: str, namespace: str) -> str:
        """The query as Prometheus gets it.

        Raises:
            OutOfScope: it names other namespaces, or is not understood.
        """
        if self.cluster:
            return query
        if not _NAMESPACE.fullmatch(namespace):
            raise OutOfScope(f"{namespace!r} is no namespace")
        try:
            return _Reader(query, self.label, namespace).scoped()
        except UnreadableQuery as error:
            raise OutOfScope(str(error)) from error


def is_label(name: str) -> bool:
    """Whether Prometheus takes it for a label's name without quotes."""
    return _LABEL.fullmatch(name) is not None


OWN_SERIES = Scope()
"""What a tenant may read."""


class _Reader:
    """One pass over the tokens. What operands and operators are is told by their order alone: precedence moves no
    selector."""

    def __init__(self, query: str, label: str, namespace: str) -> None:
        self._query, self._label, self._namespace = query, label, namespace
        self._tokens = list(tokens(query))
        self._place = 0
        self._depth = 0
        self._inserted: dict[int, str] = {}

    def scoped(self) -> str:
        self._expression()
        if self._now.kind != "end":
            raise self._unexpected("an operator or the end")
        parts, done = [], 0
        for at, text in sorted(self._inserted.items()):
            parts += [self._query[done:at], text]
            done = at
        return "".join([*parts, self._query[done:]])

    @property
    def _now(self) -> Token:
        return self._tokens[self._place]

    @property
    def _word(self) -> str:
        return self._now.text.lower() if self._now.kind == "word" else ""

    def _take(self) -> Token:
        token = self._now
        self._place += 1
        return token

    def _is(self, sign: str) -> bool:
        return self._now.kind == "sign" and self._now.text == sign

    def _took(self, sign: str) -> bool:
        found = self._is(sign)
        self._place += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            raise self._unexpected(repr(sign))

    def _unexpected(self, wanted: str) -> UnreadableQuery:
        return UnreadableQuery(f"has {excerpt(self._query, self._now.at)} where {wanted} is expected")

    def _expression(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise UnreadableQuery(f"has more than {DEEPEST} brackets within one another")
        self._operand()
        while self._operator():
            self._operand()
        self._depth -= 1

    def _operator(self) -> bool:
        if self._word not in SET_OPERATORS and not (self._now.kind == "sign" and self._now.text in _OPERATORS):
            return False
        self._take()
        if self._word == "bool":
            self._take()
        if self._word in MATCHING:
            self._take()
            self._labels()
            if self._word in JOINING:
                self._take()
                if self._is("("):
                    self._labels()
        return True

    def _operand(self) -> None:
        while self._took("+") or self._took("-"):
            pass
        token = self._now
        if self._took("("):
            self._expression()
            self._expect(")")
        elif self._is("{"):
            self._matchers()
        elif token.kind in ("number", "span", "string") or self._word in NUMBERS:
            self._take()
        elif self._word in AGGREGATIONS:
            self._take()
            self._aggregation(token)
        elif token.kind == "word":
            self._take()
            self._call_or_selector(token)
        else:
            raise self._unexpected("a metric, a number, a function or a bracket")
        self._modifiers()

    def _aggregation(self, token: Token) -> None:
        before = self._word in GROUPING
        if before:
            self._take()
            self._labels()
        if not self._is("("):
            raise UnreadableQuery(
                f"has a metric named {token.text!r} like an operator: write {{__name__={token.text!r}}}"
            )
        self._arguments()
        if not before and self._word in GROUPING:
            self._take()
            self._labels()

    def _call_or_selector(self, token: Token) -> None:
        if token.text.lower() in RESERVED:
            self._place -= 1
            raise self._unexpected("a metric, a number, a function or a bracket")
        if self._is("("):
            if token.text not in FUNCTIONS:
                raise UnreadableQuery(f"calls {token.text!r}, which may read other series than its arguments'")
            self._arguments()
        elif self._is("{"):
            self._matchers()
        else:
            self._inserted[token.end] = f"{{{self._matcher}}}"

    def _arguments(self) -> None:
        self._expect("(")
        if self._took(")"):
            return
        self._expression()
        while self._took(","):
            self._expression()
        self._expect(")")

    def _modifiers(self) -> None:
        """Ranges, offsets and fixed times after an operand."""
        while True:
            if self._now.kind == "range":
                self._take()
            elif self._word == "offset":
                self._take()
                self._signed("span", "number")
            elif self._took("@"):
                if self._word in ("start", "end"):
                    self._take()
                    self._expect("(")
                    self._expect(")")
                else:
                    self._signed("number")
            else:
                return

    def _signed(self, *kinds: str) -> None:
        if not self._took("-"):
            self._took("+")
        if self._now.kind not in kinds:
            raise self._unexpected(" or ".join({"span": "a duration", "number": "a number"}[kind] for kind in kinds))
        self._take()

    def _labels(self) -> None:
        """A list of labels in brackets."""
        self._expect("(")
        while not self._took(")"):
            self._name()
            if not self._is(")"):
                self._expect(",")

    def _name(self) -> str:
        token = self._now
        if token.kind == "string" and "\\" not in token.text:
            return self._take().text[1:-1]
        if token.kind == "word" and is_label(token.text):
            return self._take().text
        raise self._unexpected("a label's name")

    @property
    def _matcher(self) -> str:
        return f'{self._label}="{self._namespace}"'

    def _matchers(self) -> None:
        """A selector in braces."""
        opening = self._now
        self._expect("{")
        self._inserted[opening.end] = self._matcher + ("" if self._is("}") else ", ")
        while not self._took("}"):
            quoted, name = self._now.kind == "string", self._name()
            if self._now.kind == "sign" and self._now.text in _MATCHES:
                self._value(name, self._take().text)
            elif not quoted:
                raise self._unexpected("=, !=, =~ or !~")
            if not self._is("}"):
                self._expect(",")

    def _value(self, name: str, operator: str) -> None:
        if self._now.kind != "string":
            raise self._unexpected("a string")
        value = self._take().text
        if name == self._label and (operator not in ("=", "=~") or value[1:-1] != self._namespace):
            raise OutOfScope(
                f"asks for series with {name}{operator}{value}, and may read those with {self._matcher} only: "
                f"remove that, it is added"
            )
