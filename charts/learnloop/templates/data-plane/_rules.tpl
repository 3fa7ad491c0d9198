{{/* What starting and stopping training by REST takes. Whether the caller himself may is asked each time. */}}
{{- define "learnloop.dataPlane.rules" -}}
- apiGroups: [learnloop.dev]
  resources: [trainingjobs]
  verbs: [get, list, create, patch]
- apiGroups: [authorization.k8s.io]
  resources: [localsubjectaccessreviews]
  verbs: [create]
{{- end -}}
