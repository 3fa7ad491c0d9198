"""The peer: an operator as Kopf's documentation teaches it, with create and update handlers, doing the same work.

    python -m bench.operator.plain_kopf

It renders the same children and the same status (learnloop's own pure decision), applies the children with the same
asynchronous client and hands the status to Kopf's patch. What differs is what a plain Kopf operator does by itself:
handler progress and the last handled configuration in annotations, and live reads and writes in every handler.
Kinder to the peer than the field is: asynchronous handlers, no finalizer, no event posting, no leader election.
"""

import asyncio
import logging
import os
from typing import Any

import kopf
import uvloop

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import routing_config_map
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import CONFIG_MAP, DEPLOYMENT, MODEL_DEPLOYMENT, kind_of
from learnloop_operator.reconcile.work_queue import utc_now
from learnloop_operator.rollout.children.routing import read as read_table
from learnloop_operator.rollout.children.serving_arms import arms
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.state.snapshot import Defaults, Snapshot, resolve
from testing.operators.api_access import find

WHERE = (MODEL_DEPLOYMENT.group, MODEL_DEPLOYMENT.version, MODEL_DEPLOYMENT.plural)
DEFAULTS = Defaults("localhost/learnloop/serving:dev", os.environ.get("LEARNLOOP_DATA_URL", ""))
kube = KubeClient(find())


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Events are off on both sides."""
    settings.posting.enabled = False


@kopf.on.create(*WHERE)
@kopf.on.update(*WHERE)
async def reconcile(body: kopf.Body, patch: kopf.Patch, namespace: str | None, name: str, **_: Any) -> None:
    """The children, then the status."""
    assert namespace is not None
    live = {"apiVersion": names.API_VERSION, "kind": MODEL_DEPLOYMENT.kind, **dict(body)}
    labels = f"{names.LABEL_DEPLOYMENT}={name}"
    deployments, table = await asyncio.gather(
        kube.list(DEPLOYMENT, namespace, labels=labels), kube.find(CONFIG_MAP, namespace, routing_config_map(name))
    )
    spec = ModelDeploymentSpec.model_validate(live["spec"])
    plan = decide(
        Snapshot(
            now=utc_now(),
            object=live,
            children=(*deployments, *((table,) if table else ())),
            spec=spec,
            before=ModelDeploymentStatus.model_validate(live.get("status") or {}),
            desired=resolve(spec, None, namespace),
            arms=arms(deployments, ()),
            routing=read_table(table),
            defaults=DEFAULTS,
        )
    )
    for child in plan.apply:
        at = child["metadata"]
        there = await kube.find(kind_of(child), at["namespace"], at["name"])
        await kube.apply(child, "plain-kopf", live=there)
    patch.status.update(plan.status)


async def main() -> None:
    """Until SIGTERM."""
    await kopf.operator(standalone=True, clusterwide=True)
    await kube.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(main())
