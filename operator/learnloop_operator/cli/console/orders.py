"""Orders and reads of the pages: the verbs of the command line, and the data plane by its client."""

import re
import secrets
import threading
from collections.abc import Callable, Mapping
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from typing import Any

from learnloop_operator.cli import data_plane_access, main
from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.objects import CommandError, Object, status_of

KEY_HEADER = "X-Learnloop-Key"
OWN_SITES = ("same-origin", "none")


class ForeignRequestError(CommandError):
    """The request is not from the console's own browser; it is answered with 403."""


class Gate:
    """The secrets of one console, all made when it starts and nowhere written."""

    def __init__(self, port: int) -> None:
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.cookie_name = f"learnloop-console-{port}"
        self.token = secrets.token_urlsafe(32)
        self._cookie, self._key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._used, self._lock = False, threading.Lock()

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"

    def exchange(self, headers: Mapping[str, str], token: str) -> tuple[str, str]:
        """The cookie and the key of orders for the token.

        Raises:
            ForeignRequestError: foreign Host, or the token is wrong or spent.
        """
        self._same_host(headers)
        with self._lock:
            if self._used or not compare_digest(token.encode(), self.token.encode()):
                raise ForeignRequestError("this address works once: start `kubectl learnloop console` again")
            self._used = True
        return f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict", self._key

    def check(self, headers: Mapping[str, str]) -> None:
        """Let a read pass.

        Raises:
            ForeignRequestError: foreign Host, Origin or page, or no cookie.
        """
        self._same_host(headers)
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{headers['Host']}":
            raise ForeignRequestError(f"Origin {origin[:200]!r} is not the console's own")
        site = headers.get("Sec-Fetch-Site")
        if site is not None and site not in OWN_SITES:
            raise ForeignRequestError("another page asks; open the address that the command printed")
        if not compare_digest(self._sent(headers).encode(), self._cookie.encode()):
            raise ForeignRequestError("no session: open the address that `kubectl learnloop console` printed")

    def check_order(self, headers: Mapping[str, str]) -> None:
        """Let an order pass: a read's conditions, an Origin, and the key.

        Raises:
            ForeignRequestError: one of them is missing.
        """
        self.check(headers)
        if headers.get("Origin") is None:
            raise ForeignRequestError("an order without an Origin is not from the console's pages")
        if not compare_digest(headers.get(KEY_HEADER, "").encode(), self._key.encode()):
            raise ForeignRequestError("this tab has no key for orders: start `kubectl learnloop console` again")

    def _same_host(self, headers: Mapping[str, str]) -> None:
        if headers.get("host") not in self.hosts:
            raise ForeignRequestError(f"Host {headers.get('Host', '')[:200]!r} is not {self.hosts[0]}")

    def _sent(self, headers: Mapping[str, str]) -> str:
        try:
            sent = SimpleCookie(headers.get("Cookie", "")).get(self.cookie_name)
        except CookieError:
            return ""
        return sent.value if sent is not None else ""


OF_ROLLOUTS = ("approve", "reject", "pause", "resume", "skip", "promote", "abort", "undo", "retry", "restart")
ORDERS: Mapping[str, tuple[str, Callable[..., str]]] = {
    **{verb: ("modeldeployments", main.load(verb)) for verb in OF_ROLLOUTS},
    "train": ("learningagents", main.load("train")),
}
"""The plural that a verb writes to, and the verb."""
ARMS = ("canary", "stable", "blocked")
SHOWN = (*ARMS, "step")
OF_A_STEP = ("approve", "skip")
"""Orders about the step that a rollout is at; the others mean its model, at whatever weight."""
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def rights(cluster: Cluster) -> dict[str, bool]:
    """By verb, whether the caller may give the order in the cluster's namespace."""
    plurals = {plural for plural, _ in ORDERS.values()}
    allowed = {plural: cluster.allowed("patch", plural, cluster.namespace) for plural in plurals}
    return {name: allowed[plural] for name, (plural, _) in ORDERS.items()}


def carry_out(cluster: Cluster, verb: str, name: str, displayed: Mapping[str, object] | None = None) -> str:
    """Run the verb in the cluster's namespace, as `kubectl learnloop VERB NAME` does; returns its sentence.

    Args:
        displayed: the arms on the page that asked the person, by the names of SHOWN; None where it showed none.

    Raises:
        CommandError: unknown order, another model is on trial by now, or the verb's own refusal.
    """
    if verb not in ORDERS:
        raise CommandError(f"unknown verb {verb[:64]!r}; the orders are {', '.join(ORDERS)}")
    if not NAME.fullmatch(name):
        raise CommandError(f"invalid name {name[:64]!r}: name an object")
    plural, chosen = ORDERS[verb]
    if displayed is not None:
        _still_so(cluster.get(plural, name), verb, name, displayed)
    return chosen(cluster, name)


def _still_so(body: Object, verb: str, name: str, displayed: Mapping[str, object]) -> None:
    """A question may stay open for an hour, so the answer counts only for the models that it showed."""
    now = shown(body)
    for field in SHOWN if verb in OF_A_STEP else ARMS:
        if field in displayed and displayed[field] != now[field]:
            was, is_now = ("none" if value is None else str(value)[:64] for value in (displayed[field], now[field]))
            raise CommandError(f"{name}: {field} was {was} when you were asked, and is {is_now} now; look again")


def shown(body: Object) -> dict[str, object]:
    """The parts of a rollout that an order is about: revisions of its arms, and its step from 0."""
    status = status_of(body)
    arms = {"canary": status.get("canary"), "stable": status.get("stable"), "blocked": status.get("blockedRevision")}
    return {**{field: (arm or {}).get("revision") for field, arm in arms.items()}, "step": status.get("step")}


Arguments = Mapping[str, str]
TRAJECTORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
PAGE, MOST_PAGES = 20, 25
MOST_RECORDS = 300
SECONDS = 15.0
READS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "rewards": ("agent", "/api/v1/rewards/history", {"agent_id": "{}", "limit": "1000"}),
    "run": ("job", "/api/v1/training/runs/{}", {}),
    "deployed": ("deployment", "/api/v1/models/{}/deployed", {"limit": "100"}),
    "progress": ("agent", "/api/v1/agents/{}/progress", {"weeks": "12"}),
    "memories": ("agent", "/api/v1/memory/entries", {"agent_id": "{}", "limit": "200"}),
}
"""Reads of one object: the field that names it, the path, and the query."""


class Records:
    """One namespace's experience, rewards, memories and audit chain."""

    def __init__(self, plane: data_plane_access.DataPlaneAccess) -> None:
        self._plane = plane
        self._others: Mapping[str, Callable[[Arguments], Any]] = {
            "episode": self._episode,
            "recall": self._recall,
            "audit": self._audit,
        }

    def read(self, what: str, arguments: Arguments) -> Any:
        """The answer's JSON.

        Raises:
            CommandError: no such read, a bad argument, or what the data plane refuses, in its own words.
        """
        if what in READS:
            field, path, query = READS[what]
            name = _name(arguments, field)
            return self._get(path.format(name), {key: value.format(name) for key, value in query.items()})
        if what not in self._others:
            raise CommandError(f"unknown read {what[:64]!r}; the reads are {', '.join((*READS, *self._others))}")
        return self._others[what](arguments)

    def _get(self, path: str, query: Arguments) -> Any:
        return self._plane.ask("GET", path, query, seconds=SECONDS)

    def _recall(self, arguments: Arguments) -> Any:
        """The agent's recall now, with a word why for each memory. It is not logged, so looking teaches nothing."""
        agent, context = _name(arguments, "agent"), arguments.get("context", "")
        if not 1 <= len(context) <= 2000:
            raise CommandError("context: describe the situation in 1 to 2000 characters")
        body = {"agent_id": agent, "context": context, "k": 10, "logged": False}
        return self._plane.ask("POST", "/api/v1/memory/retrieve", body=body, seconds=SECONDS)

    def _episode(self, arguments: Arguments) -> Any:
        """One episode of the newest 500, step by step, and what each step was worth."""
        agent, wanted = _name(arguments, "agent"), arguments.get("trajectory", "")
        if not TRAJECTORY.fullmatch(wanted):
            raise CommandError(f"invalid trajectory {wanted[:64]!r}: give its id")
        query = {"agent": agent, "limit": str(PAGE)}
        for _ in range(MOST_PAGES):
            page = self._get("/api/v1/experience/trajectories", query)
            for episode in page["trajectories"]:
                if episode["trajectory_id"] == wanted:
                    return {"episode": episode, "credits": self._credits(wanted)}
            if page["next"] is None:
                break
            query["after"] = page["next"]
        raise CommandError(f"trajectory {wanted!r} is not among the newest {PAGE * MOST_PAGES} episodes of {agent}")

    def _credits(self, trajectory: str) -> Any:
        try:
            return self._get(f"/api/v1/rewards/credits/{trajectory}", {})
        except CommandError:
            # Not rewarded yet; the steps are worth looking at without.
            return None

    def _audit(self, arguments: Arguments) -> Any:
        action = {"action": arguments["action"][:64]} if arguments.get("action") else {}
        return self._get("/api/v1/audit/records", {"newest": "true", "limit": str(MOST_RECORDS)} | action)


def _name(arguments: Arguments, field: str) -> str:
    name = arguments.get(field, "")
    if not NAME.fullmatch(name):
        raise CommandError(f"invalid {field} {name[:64]!r}: name an object")
    return name
