{{/* "2Gi" in MiB. */}}
{{- define "learnloop.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $unit := regexFind "[A-Z]i$" . -}}
{{- mul $number (get (dict "Mi" 1 "Gi" 1024 "Ti" 1048576) $unit) -}}
{{- end -}}
{{/* The volume source of the embedder's files, as JSON; empty: there is none. */}}
{{- define "learnloop.embedderVolume" -}}
{{- with .Values.dataPlane.embedder.volume -}}
{{- if and .claimName .image -}}
{{- fail "dataPlane.embedder.volume: claimName and image are two volumes; set one of them" -}}
{{- else if .claimName -}}
{{- dict "persistentVolumeClaim" (dict "claimName" .claimName "readOnly" true) | toJson -}}
{{- else if .image -}}
{{- dict "image" (dict "reference" .image) | toJson -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{/* How the data plane finds its stores, and the authorities that it trusts. */}}
{{/* Where the release's own PostgreSQL is, after the login. */}}
{{- define "learnloop.dataPlane.database" -}}
{{ include "learnloop.postgres.host" . }}:5432/learnloop{{ if include "learnloop.tls" . }}?sslmode=verify-full&sslrootcert=/run/tls/ca.crt{{ if .Values.tls.mutual }}&sslcert=/run/tls/tls.crt&sslkey=/run/tls/tls.key{{ end }}{{ end }}
{{- end -}}
{{- define "learnloop.dataPlane.env" -}}
{{- $options := .Values.dataPlane -}}
- {name: LEARNLOOP_AUTH, value: {{ $options.auth.mode }}}
- {name: LEARNLOOP_OPERATOR_SUBJECT, value: {{ include "learnloop.operatorSubject" . }}}
{{- with $options.access.admins }}
- {name: LEARNLOOP_ADMINS, value: {{ join " " . | quote }}}
{{- end }}
- {name: LEARNLOOP_PROBES_PORT, value: "8081"}
- {name: LEARNLOOP_REQUESTS_PER_NAMESPACE, value: {{ $options.requestsPerNamespace | quote }}}
{{- with $options.quotas }}
- name: LEARNLOOP_QUOTAS
  value: {{ dict "default" (omit . "namespaces") "namespaces" .namespaces | toJson | quote }}
{{- end }}
{{- with $options.notifications }}
{{- if .url }}
- name: LEARNLOOP_NOTIFICATIONS
  value: {{ omit . "keySecret" | toJson | quote }}
{{- end }}
{{- end }}
- {name: LEARNLOOP_LOG_LEVEL, value: {{ $options.logLevel | upper }}}
- {name: LEARNLOOP_AUDIT_LOG, value: {{ .Values.logs.audit | quote }}}
- {name: LEARNLOOP_LOG_FORMAT, value: {{ .Values.logs.format }}}
- {name: LEARNLOOP_RETENTION_DAYS, value: {{ $options.retentionDays | quote }}}
- {name: LEARNLOOP_CONSOLIDATE_SECONDS, value: {{ int $options.consolidateEverySeconds | quote }}}
- {name: LEARNLOOP_ARTIFACT_RETENTION_DAYS, value: {{ $options.artifacts.retentionDays | quote }}}
{{- if $options.trainingApi.enabled }}
- {name: LEARNLOOP_TRAINING_API, value: "true"}
{{- end }}
{{- include "learnloop.tls.env" . }}
- {name: LEARNLOOP_PSEUDONYM_KEY_FILE, value: /run/credentials/pseudonym-key}
{{- with $options.encryption }}
{{- if .enabled }}
- name: LEARNLOOP_ENCRYPTION_KEYS
  valueFrom: {secretKeyRef: {name: {{ .keysSecret.name | default (include "learnloop.credentials" $) | quote }}, key: {{ .keysSecret.key | quote }}}}
{{- end }}
{{- end }}
{{- with $options.warehouse }}
{{- if .urlSecret.name }}
- name: LEARNLOOP_WAREHOUSE
  valueFrom: {secretKeyRef: {name: {{ .urlSecret.name | quote }}, key: {{ .urlSecret.key | quote }}}}
- {name: LEARNLOOP_WAREHOUSE_DAYS, value: {{ .retentionDays | quote }}}
{{- end }}
{{- end }}
- {name: LEARNLOOP_LANGUAGE, value: {{ $options.language | quote }}}
{{- with $options.embedder }}
{{- if and .url (include "learnloop.embedderVolume" $) }}
{{- fail "dataPlane.embedder: url names a server and volume a model's files; set one of them" }}
{{- end }}
{{- if include "learnloop.embedderVolume" $ }}
- {name: LEARNLOOP_EMBEDDER, value: {{ printf "onnx:///models/embedder/%s" .volume.path | trimSuffix "/" | quote }}}
{{- else if .url }}
{{- if not .model }}
{{- fail (printf "dataPlane.embedder.model: is empty, but dataPlane.embedder.url is %s; name the model" .url) }}
{{- end }}
- {name: LEARNLOOP_EMBEDDER, value: {{ printf "%s#%s" .url .model | quote }}}
- {name: LEARNLOOP_EMBEDDER_DIMENSIONS, value: {{ int .dimensions | quote }}}
- {name: LEARNLOOP_EMBEDDER_SECONDS, value: {{ int .timeoutSeconds | quote }}}
{{- if .keySecret.name }}
- name: LEARNLOOP_EMBEDDER_KEY
  valueFrom: {secretKeyRef: {name: {{ .keySecret.name | quote }}, key: {{ .keySecret.key | quote }}}}
{{- end }}
{{- end }}
{{- if .previous }}
{{- if not (or .url (include "learnloop.embedderVolume" $)) }}
{{- fail (printf "dataPlane.embedder.previous: is %s, but no embedder follows it; set url or volume" .previous) }}
{{- end }}
- {name: LEARNLOOP_EMBEDDER_BEFORE, value: {{ .previous | quote }}}
{{- end }}
- {name: LEARNLOOP_EMBEDDER_RECALL_MS, value: {{ int .recallTimeoutMilliseconds | quote }}}
{{- end }}
{{- with $options.distiller }}
{{- if .url }}
{{- if not .model }}
{{- fail (printf "dataPlane.distiller.model: is empty, but dataPlane.distiller.url is %s; name the model" .url) }}
{{- end }}
- {name: LEARNLOOP_DISTILLER, value: {{ printf "%s#%s" .url .model | quote }}}
- {name: LEARNLOOP_DISTILLER_SECONDS, value: {{ int .timeoutSeconds | quote }}}
{{- if .keySecret.name }}
- name: LEARNLOOP_DISTILLER_KEY
  valueFrom: {secretKeyRef: {name: {{ .keySecret.name | quote }}, key: {{ .keySecret.key | quote }}}}
{{- end }}
{{- end }}
{{- end }}
{{- with $options.judge }}
{{- if .url }}
{{- if not .model }}
{{- fail (printf "dataPlane.judge.model: is empty, but dataPlane.judge.url is %s; name the model" .url) }}
{{- end }}
- {name: LEARNLOOP_JUDGE, value: {{ printf "%s#%s" .url .model | quote }}}
{{- if .keySecret.name }}
- name: LEARNLOOP_JUDGE_KEY
  valueFrom: {secretKeyRef: {name: {{ .keySecret.name | quote }}, key: {{ .keySecret.key | quote }}}}
{{- end }}
{{- end }}
{{- end }}
{{- if $options.sandbox.enabled }}
- {name: LEARNLOOP_SANDBOX, value: {{ printf "%s#%s" (include "learnloop.sandbox" .) (include "learnloop.image" (dict "root" $ "image" $options.image)) | quote }}}
{{- end }}
{{- with $options.weaviate }}
{{- if .url }}
{{- if not (or $.Values.dataPlane.embedder.url $.Values.dataPlane.embedder.volume.claimName $.Values.dataPlane.embedder.volume.image) }}
{{- fail (printf "dataPlane.weaviate.url: is %s, but no embedder makes vectors for it; set dataPlane.embedder" .url) }}
{{- end }}
- {name: LEARNLOOP_WEAVIATE_URL, value: {{ .url | quote }}}
{{- with .grpc }}
- {name: LEARNLOOP_WEAVIATE_GRPC, value: {{ . | quote }}}
{{- end }}
{{- if .keySecret.name }}
- name: LEARNLOOP_WEAVIATE_KEY
  valueFrom: {secretKeyRef: {name: {{ .keySecret.name | quote }}, key: {{ .keySecret.key | quote }}}}
{{- end }}
{{- end }}
{{- end }}
{{- if ne (include "learnloop.postgres" .) "external" }}
# An ordinary login: it owns the data plane's tables, and the init container made it.
- {name: LEARNLOOP_DATABASE_PASSWORD_FILE, value: /run/credentials/database-password}
- name: LEARNLOOP_DSN
  value: postgresql://learnloop_data@{{ include "learnloop.dataPlane.database" . }}
{{- else }}
- name: LEARNLOOP_DSN
  valueFrom:
    secretKeyRef: {name: {{ .Values.postgresql.external.dsnSecret.name | quote }}, key: {{ .Values.postgresql.external.dsnSecret.key | quote }}}
{{- end }}
{{- $room := include "learnloop.mebibytes" .Values.nats.trajectories.size | int }}
{{- with .Values.nats }}
{{- if and .embedded .persistence.enabled (gt (mul $room 11) (mul (include "learnloop.mebibytes" .persistence.size | int) 6)) }}
{{- fail (printf "nats.trajectories.size: %s and three eighths more for the other streams do not fit into three quarters of nats.persistence.size (%s); raise that one or lower this one" .trajectories.size .persistence.size) }}
{{- end }}
{{- end }}
- {name: LEARNLOOP_STREAM_MAX_BYTES, value: {{ mul $room 1048576 | quote }}}
{{- with .Values.nats }}
- {name: LEARNLOOP_STREAM_REPLICAS, value: {{ ternary (min (int .replicas) 3) .external.streamReplicas .embedded | int | quote }}}
{{- end }}
{{- if .Values.nats.embedded }}
- {name: LEARNLOOP_NATS_URL, value: {{ printf "%s://%s-nats.%s.svc:4222" (ternary "nats" "tls" (eq .Values.tls.mode "off")) (include "learnloop.fullname" .) .Release.Namespace | quote }}}
- {name: LEARNLOOP_NATS_USER, value: learnloop}
- {name: LEARNLOOP_NATS_PASSWORD_FILE, value: /run/credentials/nats-password}
- {name: LEARNLOOP_NATS_ISSUER_KEY_FILE, value: /run/credentials/nats-issuer-key}
{{- else }}
- {name: LEARNLOOP_NATS_URL, value: {{ .Values.nats.external.url | quote }}}
{{- with .Values.nats.external.credentialsSecret }}
- name: LEARNLOOP_NATS_USER
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: username}}
- name: LEARNLOOP_NATS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: password}}
{{- end }}
{{- end }}
{{- if $options.artifacts.s3.bucket }}
{{- with $options.artifacts.s3 }}
- {name: LEARNLOOP_ARTIFACTS, value: {{ printf "s3://%s/%s" .bucket .prefix | trimSuffix "/" | quote }}}
{{- with .region }}
- {name: AWS_REGION, value: {{ . | quote }}}
{{- end }}
{{- with .endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
- {name: AWS_ALLOW_HTTP, value: {{ hasPrefix "http://" . | quote }}}
{{- end }}
{{- with .credentialsSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: access-key-id}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: secret-access-key}}
{{- end }}
{{- end }}
{{- else }}
- {name: LEARNLOOP_ARTIFACTS, value: file:///var/lib/learnloop/artifacts}
{{- end }}
{{- end -}}
