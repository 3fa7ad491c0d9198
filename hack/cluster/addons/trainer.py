"""Kubeflow Trainer v2 and JobSet, which makes its pods. Only with TRAINER=1, for the build takes minutes."""

import shutil
from pathlib import Path

from cluster.addons.standard import Addons
from cluster.node.oci_archive import Image
from go_programs import go_build
from toolkit.commands import run
from toolkit.progress import step, wait_until

TRAINER_IMAGE = "localhost/learnloop/trainer-controller-manager:v2.3.0"
JOBSET_IMAGE = "localhost/learnloop/jobset:v0.12.0"
TRAINER_MODULE = "github.com/kubeflow/trainer/v2"
JOBSET_MODULE = "sigs.k8s.io/jobset"
DEPLOYMENTS = (
    "/apis/apps/v1/namespaces/jobset-system/deployments/jobset-controller-manager",
    "/apis/apps/v1/namespaces/kubeflow-system/deployments/kubeflow-trainer-controller-manager",
)
READY_SECONDS = 180.0

# Trainer's own overlay fetches JobSet's manifests from a release page; here they come with JobSet's module.
TRAINER_OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: kubeflow-system
resources: [namespace.yaml, ../base/crds, ../base/manager, ../base/rbac, ../base/webhook]
secretGenerator:
- name: kubeflow-trainer-webhook-cert
  options: {disableNameSuffixHash: true}
"""
NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata: {name: kubeflow-system}
"""
# Our images know no user, so the pods name one; a start takes 15 s longer with the probes of the originals, and half
# a core is more than a small machine has left.
OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [trainer, jobset/default]
images:
- name: ghcr.io/kubeflow/trainer/trainer-controller-manager
  newName: {trainer}
  newTag: {trainer_tag}
- name: us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset
  newName: {jobset}
  newTag: {jobset_tag}
patches:
- target: {{kind: Deployment}}
  patch: |
    - op: add
      path: /spec/template/spec/containers/0/imagePullPolicy
      value: Never
    - op: add
      path: /spec/template/spec/containers/0/resources
      value: {{requests: {{cpu: 50m, memory: 64Mi}}}}
    - op: add
      path: /spec/template/spec/containers/0/securityContext/runAsUser
      value: 65532
    - op: replace
      path: /spec/template/spec/containers/0/readinessProbe/initialDelaySeconds
      value: 1
    - op: replace
      path: /spec/template/spec/containers/0/readinessProbe/periodSeconds
      value: 1
"""


def images() -> list[Image]:
    """Both controllers, built from their pinned modules."""
    programs = go_build.ensure(go_build.TRAINER, go_build.TRAINER.programs)
    return [
        Image(TRAINER_IMAGE, {"manager": programs["trainer-controller-manager"]}, ["/manager"], {}),
        Image(JOBSET_IMAGE, {"manager": programs["jobset"]}, ["/manager"], {}),
    ]


def ensure(extras: Addons) -> None:
    """Have the kinds and both controllers, ready with their webhooks. Raises CommandFailed."""
    extras.apply("trainer", _rendered(extras))
    if not _ready(extras):
        with step("Kubeflow Trainer and JobSet"):
            hint = "Look at the pods of namespaces kubeflow-system and jobset-system."
            wait_until("Kubeflow Trainer and JobSet", lambda: _ready(extras), READY_SECONDS, hint)


def render(kubectl: Path, folder: Path) -> str:
    """Everything to apply, in one text; `folder` is made again. Raises CommandFailed."""
    shutil.rmtree(folder, ignore_errors=True)
    manifests = go_build.module_folder(go_build.TRAINER, TRAINER_MODULE) / "manifests"
    jobset = go_build.module_folder(go_build.TRAINER, JOBSET_MODULE) / "config"
    shutil.copytree(manifests / "base", folder / "base", copy_function=shutil.copyfile)
    shutil.copytree(jobset, folder / "jobset", copy_function=shutil.copyfile)
    own = folder / "trainer"
    own.mkdir()
    (own / "kustomization.yaml").write_text(TRAINER_OVERLAY)
    (own / "namespace.yaml").write_text(NAMESPACE)
    trainer, _, trainer_tag = TRAINER_IMAGE.rpartition(":")
    made, _, made_tag = JOBSET_IMAGE.rpartition(":")
    overlay = OVERLAY.format(trainer=trainer, trainer_tag=trainer_tag, jobset=made, jobset_tag=made_tag)
    (folder / "kustomization.yaml").write_text(overlay)
    return run([kubectl, "kustomize", folder])


def _rendered(extras: Addons) -> Path:
    file = extras.state.config / "trainer.yaml"
    file.write_text(render(extras.kubectl, extras.state.config / "trainer"))
    return file


def _ready(extras: Addons) -> bool:
    return all(extras.api.condition(path, "Available") for path in DEPLOYMENTS)
