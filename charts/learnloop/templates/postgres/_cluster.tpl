{{/* Who runs PostgreSQL: pod (this chart, one of them), cluster (CloudNativePG) or external (somebody else). */}}
{{- define "learnloop.postgres" -}}
{{- if .Values.postgresql.cloudNativePG.enabled -}}
cluster
{{- else -}}
{{ ternary "pod" "external" .Values.postgresql.embedded }}
{{- end -}}
{{- end -}}

{{- define "learnloop.postgres.host" -}}
{{ include "learnloop.fullname" . }}-postgres{{ if eq (include "learnloop.postgres" .) "cluster" }}-rw{{ end }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The superuser's name and password, by which `prepare` migrates. CloudNativePG makes them itself. */}}
{{- define "learnloop.postgres.admin" -}}
{{ ternary "postgres" "learnloop" (eq (include "learnloop.postgres" .) "cluster") }}
{{- end -}}
{{- define "learnloop.postgres.adminSecret" -}}
{{- if eq (include "learnloop.postgres" .) "cluster" -}}
{name: {{ include "learnloop.fullname" . }}-postgres-superuser, key: password}
{{- else -}}
{name: {{ include "learnloop.credentials" . | quote }}, key: postgres-password}
{{- end -}}
{{- end -}}
