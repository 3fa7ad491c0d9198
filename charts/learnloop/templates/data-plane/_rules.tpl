{{/* What the data plane asks the API server. Whether a caller may is asked each time, with the caller's own name. */}}
{{- define "learnloop.dataPlane.rules" -}}
{{- $options := .Values.dataPlane -}}
{{- if $options.trainingApi.enabled }}
- apiGroups: [learnloop.dev]
  resources: [trainingjobs]
  verbs: [get, list, create, patch]
{{- else }}
- apiGroups: [learnloop.dev]
  resources: [trainingjobs]
  verbs: [get]
{{- end }}
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
- apiGroups: [ray.io]
  resources: [rayjobs, rayclusters]
  verbs: [get]
- apiGroups: [authorization.k8s.io]
  resources: [localsubjectaccessreviews]
  verbs: [create]
{{- end -}}

{{/* The namespace in which code is run. */}}
{{- define "learnloop.sandbox" -}}
{{- $found := default (printf "%s-sandbox" .Release.Namespace) .Values.dataPlane.sandbox.namespace -}}
{{- if or (eq $found .Release.Namespace) (has $found (default list .Values.watchNamespaces)) -}}
{{- fail (printf "dataPlane.sandbox.namespace: %s holds Secrets and agents; name a namespace of its own" $found) -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* "true" where the data plane calls the API server. */}}
{{- define "learnloop.dataPlane.asks" -}}
{{- $options := .Values.dataPlane -}}
{{- if or $options.trainingApi.enabled (ne $options.auth.mode "none") -}}
true
{{- end -}}
{{- end -}}
