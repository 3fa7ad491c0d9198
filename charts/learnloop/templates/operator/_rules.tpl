{{/* All the operator may do in a namespace it watches: the one source of the ClusterRole and of the Roles. */}}
{{- define "learnloop.operator.rules" -}}
- apiGroups: [learnloop.dev]
  resources: [learningagents, memoryservices, modeldeployments, rewardpolicies, trainingjobs]
  verbs: [get, list, watch]
- apiGroups: [learnloop.dev]
  resources:
    - learningagents/status
    - memoryservices/status
    - modeldeployments/status
    - rewardpolicies/status
    - trainingjobs/status
  verbs: [patch]
# A child's ownerReference with blockOwnerDeletion, where the cluster enforces it.
- apiGroups: [learnloop.dev]
  resources: [learningagents/finalizers, memoryservices/finalizers, modeldeployments/finalizers, trainingjobs/finalizers]
  verbs: [update]
# The children of a LearningAgent, and the trials of a TrainingJob.
- apiGroups: [learnloop.dev]
  resources: [modeldeployments, trainingjobs]
  verbs: [create, patch, delete]
# What runs the ranks of a TrainingJob, whichever of them the cluster has.
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [get, list, watch, create, patch, delete]
# Why a gang waits in its queue.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# Whose pods are an arm's: labels are anybody's.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list]
- apiGroups: [""]
  resources: [configmaps, services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# The password of a MemoryService that runs its own PostgreSQL, and the key by which a
# ModelDeployment's servers know their episodes. They are made, and never read, changed or removed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# A policy server may watch its own routing table: a role grants only what its writer holds, so get and watch on
# configmaps above are part of this.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, create, patch, delete]
# Callers of policy servers, ranks, actors and MemoryServices, and what these call.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
# list: why pods cannot be made, which nothing but events says.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create]
{{- end -}}

{{/* Only possible cluster-wide: noticing that a kind of somebody else's appears. */}}
{{- define "learnloop.operator.clusterRules" -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get, list, watch]
{{- end -}}
