"""`override`: replace the policy's answers, for one agent or for all."""

import re
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlencode

import typer

from learnloop_operator.cli.objects import Cluster, CommandError, UsageError
from learnloop_operator.cli.rollout_order import look, signed
from learnloop_operator.core.snapshot import LONGEST_NOTE
from learnloop_operator.rollout.model.overrides import LONGEST, NONE

_SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def override(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a ModelDeployment")],
    action: Annotated[int | None, typer.Option(metavar="N", help="always this one of several actions")] = None,
    numbers: Annotated[str | None, typer.Option(metavar="A,B", help="always this action made of numbers")] = None,
    answer: Annotated[str | None, typer.Option(metavar="TEXT", help="always this text, of a language model")] = None,
    fallback: Annotated[bool, typer.Option("--fallback", help="the agent's own fallback, or the gateway's")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="no answer at all")] = False,
    end: Annotated[bool, typer.Option("--end", help="the policy decides again")] = False,
    agent: Annotated[str | None, typer.Option(help="a LearningAgent; left out, all agents")] = None,
    span: Annotated[str, typer.Option("--for", metavar="TIME", help="a number and s, m, h or d, at most 7d")] = "1h",
    reason: Annotated[str, typer.Option(help="everyone can read it")] = "",
) -> str:
    """Sign the order; it ends by itself."""
    given = [action is not None, numbers is not None, answer is not None, fallback, stop, end]
    if sum(given) != 1:
        raise UsageError("give exactly one of --action, --numbers, --answer, --fallback, --stop and --end")
    rollout = look(cluster, name, to_roll_back=True)
    target, readers = {"agent": agent} if agent else {}, agent or "every agent"
    if end:
        rollout.order("override", urlencode({"instead": NONE} | target))
        return f"{readers} gets the policy's answers again"
    if not reason.strip():
        raise CommandError("--reason: missing; say why, e.g. --reason 'prices are wrong'")
    fixed = {"choice": action if action is None else str(action), "numbers": numbers, "answer": answer}
    instead, label = ("stop", "no answer") if stop else ("fallback", "the fallback")
    if not stop and not fallback:
        instead, label = "fixed", "the fixed answer"
    order = {"instead": instead} | {key: value for key, value in fixed.items() if value is not None}
    why = {"for": str(int(_span(span).total_seconds())), "reason": reason.strip()}
    what = urlencode(order | target | why, safe=":,")
    if len(signed(cluster, what)) >= LONGEST_NOTE:
        raise CommandError("--reason and --answer are too long for one annotation: make one of them shorter")
    rollout.order("override", what)
    return f"{readers} gets {label} for {span}; `kubectl learnloop override {name} --end` ends it sooner"


def _span(text: str) -> timedelta:
    match = _SPAN.fullmatch(text)
    span = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < span <= LONGEST:
        raise CommandError(f"--for {text!r}: give a number and s, m, h or d, at most 7d")
    return span
