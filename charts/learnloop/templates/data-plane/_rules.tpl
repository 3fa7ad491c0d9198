{{/* What the data plane asks the API server. Whether a caller may is asked each time, with the caller's own name. */}}
{{- define "learnloop.dataPlane.rules" -}}
{{- $options := .Values.dataPlane -}}
{{- if $options.trainingApi.enabled }}
- apiGroups: [learnloop.dev]
  resources: [trainingjobs]
  verbs: [get, list, create, patch]
{{- else if eq $options.access.runWriters "ranks" }}
- apiGroups: [learnloop.dev]
  resources: [trainingjobs]
  verbs: [get]
{{- end }}
{{- if eq $options.access.runWriters "ranks" }}
# Whose rank a pod is that reports a run.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [get]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [get]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get]
{{- end }}
{{- if or $options.trainingApi.enabled (eq $options.access.roles "rbac") }}
- apiGroups: [authorization.k8s.io]
  resources: [localsubjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}

{{/* The namespace in which code is run. */}}
{{- define "learnloop.sandbox" -}}
{{- $found := default (printf "%s-sandbox" .Release.Namespace) .Values.dataPlane.sandbox.namespace -}}
{{- if or (eq $found .Release.Namespace) (has $found (default list .Values.watchNamespaces)) -}}
{{- fail (printf "dataPlane.sandbox.namespace: %s holds Secrets and agents; name a namespace of its own" $found) -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* Whether it asks anything: "true" or nothing. Without authentication nobody is told apart. */}}
{{- define "learnloop.dataPlane.asks" -}}
{{- $options := .Values.dataPlane -}}
{{- $tells := or (eq $options.access.roles "rbac") (eq $options.access.runWriters "ranks") -}}
{{- if or $options.trainingApi.enabled (and $tells (ne $options.auth.mode "none")) -}}
true
{{- end -}}
{{- end -}}
