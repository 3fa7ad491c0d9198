"""`kubectl learnloop …`: kubectl finds this program as the plugin `kubectl-learnloop`.

argparse, as the help must take no time: with typer and rich it begins by importing both.
"""

import argparse
import sys
from collections.abc import Collection, Sequence

from learnloop_common.foreign_text import shown
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.verb_table import VERBS


def parser(loaded: Collection[str] = tuple(VERBS)) -> argparse.ArgumentParser:
    """One sub-command per verb; the cluster's options stand before or after it.

    Args:
        loaded: verbs that get their arguments; the others are there for the help alone.
    """
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-n", "--namespace", help="default: the context's")
    common.add_argument("--context", help="context of the kubeconfig")
    common.add_argument("--kubeconfig", help="default: $KUBECONFIG, ~/.kube/config, or the pod's own account")
    top = argparse.ArgumentParser(prog="kubectl learnloop", description="Ask and steer learnloop.", parents=[common])
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, entry in VERBS.items():
        sub = verbs.add_parser(name, help=entry.help, description=entry.help, parents=[common])
        if name in loaded:
            verb = entry.load()
            verb.arguments(sub)
            sub.set_defaults(run=verb.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 1 with one sentence on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser([name for name in given if name in VERBS]).parse_args(given)
    try:
        from learnloop_operator.cli.access.kubernetes_cluster import KubernetesCluster  # a second, for what runs alone

        cluster = KubernetesCluster(
            getattr(options, "kubeconfig", None),
            getattr(options, "context", None),
            getattr(options, "namespace", None),
        )
        answer = options.run(cluster, options)
        if answer:
            print(shown(answer))
    except CommandError as error:
        print(shown(f"error: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
