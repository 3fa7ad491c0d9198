"""All verbs, in the order of the help. A verb is imported when it is named: the help takes no time."""

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from learnloop_operator.cli.verb_protocol import Verb

PACKAGE = "learnloop_operator.cli"


class ListedVerb(NamedTuple):
    """Where a verb is, as MODULE or MODULE:ATTRIBUTE of the package, and its line in the help."""

    place: str
    help: str

    def load(self) -> Verb:
        """Import it."""
        module, _, attribute = self.place.partition(":")
        loaded = import_module(f"{PACKAGE}.{module}")
        verb: Verb = getattr(loaded, attribute) if attribute else loaded
        return verb


VERBS: Mapping[str, ListedVerb] = {
    "status": ListedVerb("verbs.status", "show where each agent's loop stands"),
    "get": ListedVerb("verbs.get", "agents, runs and rollouts in one table; -w keeps it current"),
    "watch": ListedVerb(
        "verbs.following.watch", "an agent's loop, live: its run, its rollout, and what was decided and why"
    ),
    "console": ListedVerb(
        "console.command",
        "look at agents, runs and rollouts in a browser, and steer them, on loopback with your own rights",
    ),
    "report": ListedVerb(
        "verbs.following.report", "what got better, was refused, rolled back, or waits for a person, in a day or a week"
    ),
    "trace": ListedVerb(
        "verbs.trace", "walk a served model back to its training run, reward policy revision and experience"
    ),
    "why": ListedVerb("verbs.why", "explain a rollout: verdict, evidence of each metric, decisions of people, log"),
    "plan": ListedVerb(
        "verbs.plan", "say what a ModelDeployment would do now, or would have done with the rollouts of the past"
    ),
    "train": ListedVerb("verbs.train", "start a training run of an agent now"),
    "retrain": ListedVerb(
        "verbs.following.retrain",
        "train an agent and wait for the verdict: exit status 0 validated, 1 refused or failed; JUnit for pipelines",
    ),
    "propose": ListedVerb(
        "verbs.following.propose",
        "write an agent's newest proven model into its manifest, for a pull request where Git is the source of truth",
    ),
    "rewards": ListedVerb(
        "verbs.rewards",
        "what an agent's newest episodes were worth, component by component, and signs that the policy is gamed",
    ),
    "progress": ListedVerb(
        "verbs.progress",
        "what an agent got better at: success, time, turns, satisfaction, trainings and deployments by week",
    ),
    "audit": ListedVerb(
        "verbs.audit", "check the namespace's audit chain, write it out, or erase a person or an agent for good"
    ),
    "approve": ListedVerb("verbs.steering:approve", "let a rollout go on that waits for approval"),
    "reject": ListedVerb(
        "verbs.steering:reject", "refuse the step that waits for approval: the canary is rolled back and blocked"
    ),
    "pause": ListedVerb("verbs.steering:pause", "hold a canary at its weight; the checks go on"),
    "resume": ListedVerb("verbs.steering:resume", "let a canary go on that was put on hold"),
    "skip": ListedVerb(
        "verbs.steering:skip",
        "pass the current step of a canary without its evidence, or end the guard that a new model waits for",
    ),
    "promote": ListedVerb(
        "verbs.promote",
        "promote a canary without the evidence of its remaining steps, or an experiment's winner that waits for it",
    ),
    "restart": ListedVerb(
        "verbs.steering:restart", "begin a canary's rollout again at the first step, without its evidence"
    ),
    "retry": ListedVerb("verbs.steering:retry", "try a revision again that was rolled back"),
    "abort": ListedVerb(
        "verbs.steering:abort", "roll the canary, a model still being guarded, or one arm of an experiment back now"
    ),
    "undo": ListedVerb(
        "verbs.steering:undo", "roll back a promoted model: to the warm old arm, else to the last one on record"
    ),
    "override": ListedVerb(
        "verbs.override",
        "decide in the policy's place: a fixed answer or action, the fallback, or none at all; it ends by itself",
    ),
    "backup": ListedVerb(
        "verbs.keeping.backup", "back the installation up now: database, artifacts, waiting messages, sealed keys"
    ),
    "restore": ListedVerb(
        "verbs.keeping.restore",
        "restore a backup into an empty installation, and verify all of it; or open a backup's keys",
    ),
    "rotate": ListedVerb(
        "verbs.keeping.rotate", "give a secret a new value; the old one holds beside it for as long as anybody needs it"
    ),
}
