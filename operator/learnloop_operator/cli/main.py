"""`kubectl learnloop …`: kubectl finds this program as the plugin `kubectl-learnloop`."""

import argparse
import sys
from collections.abc import Sequence

from learnloop_api.foreign_text import shown
from learnloop_operator.cli.access.cluster import KubernetesCluster
from learnloop_operator.cli.console import command as console
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.verb_protocol import Verb
from learnloop_operator.cli.verbs import (
    abort,
    approve,
    audit,
    get,
    override,
    pause,
    plan,
    progress,
    promote,
    reject,
    restart,
    resume,
    retry,
    rewards,
    skip,
    status,
    trace,
    train,
    undo,
    why,
)
from learnloop_operator.cli.verbs.following import propose, report, retrain, watch
from learnloop_operator.cli.verbs.keeping import backup, restore, rotate

VERBS: tuple[Verb, ...] = (
    status, get, watch, console, report, trace, why, plan, train, retrain, propose, rewards, progress, audit,
    approve, reject, pause, resume, skip, promote, restart, retry, abort, undo, override,
    backup, restore, rotate,
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """One sub-command per verb; the cluster's options stand before or after it."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-n", "--namespace", help="default: the context's")
    common.add_argument("--context", help="context of the kubeconfig")
    common.add_argument("--kubeconfig", help="default: $KUBECONFIG, ~/.kube/config, or the pod's own account")
    top = argparse.ArgumentParser(prog="kubectl learnloop", description="Ask and steer learnloop.", parents=[common])
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        sub = verbs.add_parser(verb.NAME, help=verb.HELP, description=verb.HELP, parents=[common])
        verb.arguments(sub)
        sub.set_defaults(run=verb.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 1 with one sentence on stderr."""
    options = parser().parse_args(arguments)
    try:
        cluster = KubernetesCluster(
            getattr(options, "kubeconfig", None),
            getattr(options, "context", None),
            getattr(options, "namespace", None),
        )
        said = options.run(cluster, options)
        if said:
            print(shown(said))
    except CommandError as error:
        print(shown(f"error: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
