{{- define "learnloop.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of every object; 40 characters leave room for "-credentials" in a DNS label. */}}
{{- define "learnloop.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "learnloop.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "learnloop.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select one component's pods. Call: (dict "root" $ "component" "operator") */}}
{{- define "learnloop.selector" -}}
app.kubernetes.io/name: {{ include "learnloop.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "learnloop.labels" -}}
{{ include "learnloop.selector" . }}
app.kubernetes.io/part-of: learnloop
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Name, namespace and labels of one object. Call: (dict "root" $ "component" "data-plane" "suffix" "data") */}}
{{- define "learnloop.metadata" -}}
name: {{ include "learnloop.fullname" .root }}-{{ .suffix }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "learnloop.labels" . | nindent 2 }}
{{- end -}}

{{/* Full image reference. Our own images carry the chart's appVersion. Call: (dict "root" $ "image" .Values.…) */}}
{{- define "learnloop.image" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.global.imageRegistry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Annotations of a pod that has to end by itself: a mesh's sidecar would keep it. The same as NO_SIDECAR of
     learnloop_api.names. */}}
{{- define "learnloop.noSidecar" -}}
sidecar.istio.io/inject: "false"
linkerd.io/inject: disabled
consul.hashicorp.com/connect-inject: "false"
{{- end -}}

{{/* What every pod template shares: identity, scheduling, restricted pod security.
     Call: (dict "root" $ "options" .Values.… "component" "…" "suffix" "…" "uid" 65532 "token" true|false), and "apart"
     true where one node must never have two of them, if spread.nodes says require. */}}
{{- define "learnloop.pod" -}}
serviceAccountName: {{ include "learnloop.fullname" .root }}-{{ .suffix }}
automountServiceAccountToken: {{ .token }}
enableServiceLinks: false
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .uid }}
  runAsGroup: {{ .uid }}
  fsGroup: {{ .uid }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .options.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .options.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .options.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if .options.affinity }}
  {{- toYaml .options.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    {{- if and .apart (eq .root.Values.spread.nodes "require") }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "learnloop.selector" . | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 50
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "learnloop.selector" . | nindent 14 }}
    {{- end }}
{{- end }}
{{- if gt (int (default 1 .options.replicas)) 1 }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "learnloop.selector" . | nindent 8 }}
{{- end }}
{{- end -}}

{{/* One at a time, where there are several. Call: learnloop.metadata's, and "replicas". */}}
{{- define "learnloop.disruptionBudget" -}}
{{- if and .root.Values.podDisruptionBudget.enabled (gt (int .replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "learnloop.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "learnloop.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "learnloop.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "learnloop.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "learnloop.metadata" . | nindent 2 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# Pods ask for a token one by one.
automountServiceAccountToken: false
{{- end -}}

{{/* The volume claim of an embedded store: (dict "root" $ "component" "…" "persistence" .Values.….persistence) */}}
{{- define "learnloop.claims" -}}
{{- if .persistence.enabled }}
# `kubectl delete` of the claim is the only thing that ends data with keep: true.
persistentVolumeClaimRetentionPolicy:
  whenDeleted: {{ ternary "Retain" "Delete" .persistence.keep }}
  whenScaled: Retain
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: data
      labels:
        {{- include "learnloop.selector" . | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      volumeMode: Filesystem
      {{- with .persistence.storageClassName }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests:
          storage: {{ .persistence.size }}
{{- end }}
{{- end -}}

{{- define "learnloop.dataUrl" -}}
{{ include "learnloop.scheme" . }}://{{ include "learnloop.fullname" . }}-data.{{ .Release.Namespace }}.svc:8080
{{- end -}}

{{/* Who the operator is to the data plane and to MemoryServices. */}}
{{- define "learnloop.operatorSubject" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "learnloop.fullname" . }}-operator
{{- end -}}

{{- define "learnloop.prometheusUrl" -}}
{{- if .Values.prometheus.embedded -}}
{{ include "learnloop.scheme" . }}://{{ include "learnloop.fullname" . }}-prometheus.{{ .Release.Namespace }}.svc:9090
{{- else -}}
{{ .Values.prometheus.external.url }}
{{- end -}}
{{- end -}}

{{/* Where pods with metrics live: the watched namespaces and our own. Empty: everywhere. */}}
{{- define "learnloop.namespaces" -}}
{{- if .Values.watchNamespaces -}}
{{- append .Values.watchNamespaces .Release.Namespace | uniq | sortAlpha | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- define "learnloop.credentials" -}}
{{ include "learnloop.fullname" . }}-credentials
{{- end -}}

{{/* Mounting the credentials holds a pod back until the operator has filled them in; the variables that read them
     would otherwise be retried by the kubelet only every ten seconds or more. */}}
{{- define "learnloop.credentialsVolume" -}}
- name: credentials
  secret:
    secretName: {{ include "learnloop.credentials" .root | quote }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end -}}

{{/* Roles and bindings from one list of rules: a ClusterRole, or a Role for each namespace.
     Call: (dict "root" $ "component" "…" "suffix" "…" "rules" "name of a template"), and where they differ from the
     default "clusterRules" (a template of more rules for the ClusterRole), "namespaces" (instead of the watched). */}}
{{- define "learnloop.access" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "learnloop.fullname" $root) .suffix -}}
{{- $call := . -}}
{{- if not $root.Values.watchNamespaces -}}
{{- $clusterName := printf "%s-%s" $root.Release.Namespace $name }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $clusterName }}
  labels:
    {{- include "learnloop.labels" $call | nindent 4 }}
rules:
  {{- include .rules $root | nindent 2 }}
  {{- with .clusterRules }}
  {{- include . $root | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $clusterName }}
  labels:
    {{- include "learnloop.labels" $call | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $clusterName }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace | quote }}}
{{- else -}}
{{- range (default $root.Values.watchNamespaces .namespaces) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ . | quote }}
  labels:
    {{- include "learnloop.labels" $call | nindent 4 }}
rules:
  {{- include $call.rules $root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ . | quote }}
  labels:
    {{- include "learnloop.labels" $call | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Whether the API server checks the names in people's decisions: "true" or nothing. */}}
{{- define "learnloop.verifiesNames" -}}
{{- $known := semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version -}}
{{- if or (eq .Values.decisions.verifyNames "always") (and (eq .Values.decisions.verifyNames "auto") $known (not .Values.watchNamespaces)) -}}
true
{{- end -}}
{{- end -}}

{{/* Whether authors' own rights are asked for: "true" or nothing. */}}
{{- define "learnloop.asksAuthors" -}}
{{- $known := semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version -}}
{{- if or (eq .Values.authors.askRights "always") (and (eq .Values.authors.askRights "auto") $known (not .Values.watchNamespaces)) -}}
true
{{- end -}}
{{- end -}}

{{/* Name of the ClusterTrainingRuntime. It belongs to the whole cluster, and so carries the namespace, as ClusterRoles do. */}}
{{- define "learnloop.trainingRuntime" -}}
{{ .Release.Namespace }}-{{ include "learnloop.fullname" . }}
{{- end -}}
