"""Results as JUnit XML, which every pipeline shows."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from learnloop_operator.cli.errors import CommandError

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0, production 2: parsers refuse a document with any other character."""


class Case(NamedTuple):
    """One test case."""

    name: str
    passed: bool
    message: str


def junit(suite_name: str, cases: Sequence[Case]) -> str:
    """One suite of `cases`, as text."""
    failures = sum(not case.passed for case in cases)
    suite = ElementTree.Element("testsuite", name=suite_name, tests=str(len(cases)), failures=str(failures))
    for name, passed, message in cases:
        case = Case(NOT_IN_XML.sub("\ufffd", name), passed, NOT_IN_XML.sub("\ufffd", message))
        found = ElementTree.SubElement(suite, "testcase", classname=suite_name, name=case.name)
        if case.passed:
            ElementTree.SubElement(found, "system-out").text = case.message
        else:
            ElementTree.SubElement(found, "failure", message=case.message)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def write_junit(file: str, suite_name: str, cases: Sequence[Case]) -> None:
    """Raises CommandError where `file` cannot be written."""
    try:
        Path(file).write_text(junit(suite_name, cases), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--junit {file!r} cannot be written: {error.strerror or error}") from error


@contextmanager
def failure_written(file: str | None, suite_name: str, case: str) -> Iterator[None]:
    """From the beginning `file` has a failed test case: who is killed leaves no result of an earlier run there, and a
    file that cannot be written is known before anything is asked for. Where the block raises CommandError, it says why.
    """
    if file and (Path(file).is_file() or not Path(file).exists()):
        write_junit(file, suite_name, [Case(case, False, "it was interrupted before there was a result")])
    try:
        yield
    except CommandError as error:
        if file:
            write_junit(file, suite_name, [Case(case, False, str(error))])
        raise
