"""`kubectl learnloop …`: kubectl runs this program as the plugin `kubectl-learnloop`.

A verb is a function of the cluster and its own options that returns the text to print. It is imported when it is named,
so that the help takes no time.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from learnloop_common.untrusted_text import shown
from learnloop_operator.cli.objects import CommandError, UsageError

PACKAGE = "learnloop_operator.cli"
PROGRAM = "kubectl learnloop"
ORDERS = "steering_verbs"
READS = "explaining_verbs"


class Verb(NamedTuple):
    """The module of a verb's function, and its line in the help."""

    module: str
    help: str


VERBS: Mapping[str, Verb] = {
    "console": Verb(
        "console.server",
        "look at agents, runs and rollouts in a browser, and steer them, on loopback with your own rights",
    ),
    "trace": Verb(READS, "trace a served model to its training run, reward policy revision and experience"),
    "why": Verb(READS, "explain a rollout: verdict, evidence of each metric, decisions of people, log"),
    "train": Verb(
        ORDERS,
        "start a training run of an agent; --wait exits with 0 when it is validated, 1 when it was refused or failed",
    ),
    "engine": Verb("engine_check", "check that an image of yours keeps to the engine contract, by a short training"),
    "rewards": Verb(READS, "list an agent's newest rewards by component, and signs that the policy is gamed"),
    "progress": Verb(
        READS,
        "report an agent week by week, as its page of the console does: success, time, turns, satisfaction, trainings "
        "and deployments",
    ),
    "audit": Verb("audit", "check the namespace's audit chain, export it, or erase a person or an agent for good"),
    "approve": Verb(ORDERS, "let a rollout continue that waits for approval"),
    "reject": Verb(ORDERS, "refuse the step that waits for approval: the canary is rolled back and blocked"),
    "pause": Verb(ORDERS, "hold a canary at its weight; the checks go on"),
    "resume": Verb(ORDERS, "let a canary continue that was put on hold"),
    "skip": Verb(
        ORDERS,
        "pass the current step of a canary without its evidence, or end the guard that a new model waits for",
    ),
    "promote": Verb(
        ORDERS,
        "promote a canary without the evidence of its remaining steps, or an experiment's winner that waits for it",
    ),
    "restart": Verb(ORDERS, "start a canary's rollout over at the first step, without its evidence"),
    "retry": Verb(ORDERS, "allow a revision again that was rolled back"),
    "abort": Verb(ORDERS, "roll back the canary, a model that is still guarded, or one arm of an experiment"),
    "undo": Verb(ORDERS, "roll back a promoted model: to the warm old arm, else to the last one on record"),
    "override": Verb(
        ORDERS,
        "replace the policy's answers: by a fixed answer or action, the fallback, or none; ends by itself",
    ),
}

NamespaceOption = Annotated[
    str | None, typer.Option("-n", "--namespace", help="default: the context's", show_default=False)
]
ContextOption = Annotated[str | None, typer.Option(help="context of the kubeconfig", show_default=False)]
KubeconfigOption = Annotated[
    str | None,
    typer.Option(help="default: $KUBECONFIG, ~/.kube/config, or the pod's own account", show_default=False),
]
COMMON = {"namespace": NamespaceOption, "context": ContextOption, "kubeconfig": KubeconfigOption}
"""Options of every verb, before or after its name."""
PLANE = {
    "memory_service": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="a MemoryService; default: the installation's own", show_default=False),
    ],
    "data_service": Annotated[
        str | None, typer.Option(metavar="NAMESPACE/NAME:PORT", help="the data plane's Service", show_default=False)
    ],
    "service_account": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the account of the namespace that asks (default)", show_default=False),
    ],
}
"""Options of each verb with a parameter `plane`."""


def load(name: str) -> Callable[..., str]:
    verb: Callable[..., str] = getattr(import_module(f"{PACKAGE}.{VERBS[name].module}"), name)
    return verb


def command(name: str) -> Any:
    """A verb as typer's command, with the options that it shares with others."""
    verb = load(name)
    own = inspect.signature(verb, eval_str=True).parameters
    shared = COMMON | (PLANE if "plane" in own else {})

    @wraps(verb)
    def run(typer_context: typer.Context, **values: Any) -> None:
        before = typer_context.obj or {}
        access = {option: values.pop(option) or before.get(option) for option in COMMON}
        plane = {option: value for option in PLANE if option in shared and (value := values.pop(option))}
        run_verb(verb, access, plane if "plane" in own else None, values)

    others = [one for one in own.values() if one.name not in ("cluster", "plane")]
    more = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=value)
            for key, value in shared.items()]  # fmt: skip
    first = inspect.Parameter("typer_context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = inspect.Signature([first, *others, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (first, *others, *more)}
    run.__doc__ = VERBS[name].help
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(run)
    return typer.main.get_command(single)


def run_verb(verb: Callable[..., str], access: Mapping[str, Any], plane: Mapping[str, Any] | None, values: Any) -> None:
    """Run a verb and print its text. Exit status: 0, or 1 with one sentence on stderr; 2 for wrong options."""
    try:
        from learnloop_operator.cli.cluster import KubernetesCluster

        cluster = KubernetesCluster(access["kubeconfig"], access["context"], access["namespace"])
        if plane is not None:
            from learnloop_operator.cli.data_plane_access import DataPlaneAccess, DataPlaneOptions

            values["plane"] = DataPlaneAccess(cluster, DataPlaneOptions(**plane))
        answer = verb(cluster, **values)
        if answer:
            print(shown(answer))
    except CommandError as error:
        print(shown(f"error: {error}"), file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


class Verbs(TyperGroup):
    """Imports a verb when it is named; the list of all needs none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


app = typer.Typer(cls=Verbs, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
                  subcommand_metavar="VERB …", no_args_is_help=True)  # fmt: skip


@app.callback()
def options(
    typer_context: typer.Context,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Inspect and steer learnloop."""
    typer_context.obj = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        app(sys.argv[1:] if arguments is None else list(arguments), prog_name=PROGRAM)
    except SystemExit as end:
        return int(end.code or 0)
    except ModuleNotFoundError as missing:
        print(f"error: {missing}: install 'kubectl-learnloop[console]'", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
