"""`kubectl learnloop override NAME`: decide in the policy's place, for one agent or for all."""

import argparse
import re
from datetime import timedelta
from urllib.parse import urlencode

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.steering.rollout_order import look
from learnloop_operator.cli.steering.signature import signed
from learnloop_operator.core.snapshot import LONGEST_NOTE
from learnloop_operator.rollout.model.overrides import LONGEST, NONE

NAME = "override"
_SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where, what, for whom, for how long and why."""
    parser.add_argument("name", help="a ModelDeployment")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--action", type=int, metavar="N", help="this action of several, whatever is observed")
    what.add_argument("--numbers", metavar="A,B", help="this action made of numbers")
    what.add_argument("--answer", metavar="TEXT", help="these words, of a language model")
    what.add_argument("--fallback", action="store_true", help="the agent's own fallback, or the gateway's, decides")
    what.add_argument("--stop", action="store_true", help="nobody gets an answer")
    what.add_argument("--end", action="store_true", help="the policy decides again")
    parser.add_argument("--agent", help="a LearningAgent's name; left out: all agents")
    parser.add_argument(
        "--for",
        dest="span",
        default="1h",
        metavar="1h",
        help="so long, once obeyed: a number and s, m, h or d",
    )
    parser.add_argument("--reason", default="", help="why; everybody reads it")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Sign the order."""
    rollout = look(cluster, options.name, to_roll_back=True)
    agent = {"agent": options.agent} if options.agent else {}
    if options.end:
        rollout.order(NAME, urlencode({"instead": NONE} | agent))
        return f"{options.agent or 'every agent'} gets the policy's answers again"
    if not options.reason.strip():
        raise CommandError("--reason: missing; say why, e.g. --reason 'prices are wrong'")
    why = {"for": str(int(_span(options.span).total_seconds())), "reason": options.reason.strip()}
    what = urlencode(_instead(options) | agent | why, safe=":,")
    if len(signed(cluster, what)) >= LONGEST_NOTE:
        raise CommandError("--reason and --answer are too long for one annotation: make one of them shorter")
    rollout.order(NAME, what)
    told = f"{options.agent or 'every agent'} gets {_said(options)} for {options.span}"
    return f"{told}; `kubectl learnloop override {options.name} --end` ends it sooner"


def _instead(options: argparse.Namespace) -> dict[str, str]:
    if options.stop or options.fallback:
        return {"instead": "stop" if options.stop else "fallback"}
    if options.action is not None:
        return {"instead": "fixed", "choice": str(options.action)}
    return {"instead": "fixed"} | (
        {"numbers": options.numbers} if options.numbers is not None else {"answer": options.answer}
    )


def _said(options: argparse.Namespace) -> str:
    return "no answer" if options.stop else "the fallback" if options.fallback else "the fixed answer"


def _span(text: str) -> timedelta:
    found = _SPAN.fullmatch(text)
    span = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not timedelta() < span <= LONGEST:
        raise CommandError(f"--for {text!r}: give a number and s, m, h or d, at most 7d")
    return span
