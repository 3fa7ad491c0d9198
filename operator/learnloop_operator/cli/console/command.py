"""`kubectl learnloop console`: the loop in a browser, with the caller's own kubeconfig and rights."""

import argparse
import signal
import webbrowser
from typing import cast

from learnloop_operator.cli.access import data_plane
from learnloop_operator.cli.access.all_namespaces import AllNamespaces
from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.access.kubernetes_cluster import KubernetesCluster
from learnloop_operator.cli.console.browser_access import Gate
from learnloop_operator.cli.console.change_log import ChangeLog
from learnloop_operator.cli.console.cluster_watch import ClusterWatch, visible
from learnloop_operator.cli.console.orders import AskedRights
from learnloop_operator.cli.console.server import Console, ConsoleServer
from learnloop_operator.cli.errors import CommandError

NAME = "console"
LIST_SECONDS = 10.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to show, and where."""
    parser.add_argument(
        "--namespaces", metavar="A,B", default="", help="only these; left out, all that the caller may read"
    )
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; left out, a free one")
    parser.add_argument(
        "--open", action="store_true", help="open the browser; other users of the machine may see its arguments"
    )
    data_plane.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Serve until Ctrl-C, or SIGTERM.

    Raises:
        CommandError: the port is taken, or the API server does not answer.
    """
    own = cast(KubernetesCluster, cluster)
    server, watch = open_console(own, options)
    gate = server.console.gate if server.console else Gate(server.port)
    # A shell has what it starts in the background ignore Ctrl-C; whoever ends it by either signal means the same.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    watch.start()
    watch.wait_for_lists(LIST_SECONDS)
    print(f"{gate.address}\nThe address works once, in one browser of this machine. Ctrl-C ends it.", flush=True)
    if options.open:
        webbrowser.open(gate.address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return ""
    finally:
        watch.stop()
        server.server_close()
    return ""


def open_console(cluster: KubernetesCluster, options: argparse.Namespace) -> tuple[ConsoleServer, ClusterWatch]:
    """The server, listening, and what keeps it current; neither is started.

    Raises:
        CommandError: a bad option, or the API server does not answer.
    """
    if not 0 <= options.port <= 65535:
        raise CommandError(f"--port {options.port}: give 1 to 65535, or leave it out")
    reads, log = AllNamespaces(cluster.api), ChangeLog()
    asked = [name for name in options.namespaces.split(",") if name]
    where = visible(reads, cluster.namespace, asked)
    watch = ClusterWatch(reads, log, where)
    try:
        server = ConsoleServer(options.port)
    except OSError as error:
        raise CommandError(f"--port {options.port}: {error.strerror}; name another, or leave it out") from error
    server.console = Console(
        gate=Gate(server.port),
        log=log,
        within=cluster.within,
        rights=AskedRights(reads),
        options=options,
        scope={"user": cluster.user(), "namespaces": where.names, "message": where.message},
        problems=watch.problems,
        away=lambda: watch.pulse.away,
    )
    return server, watch
