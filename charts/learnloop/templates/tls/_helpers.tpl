{{/* Whether the parts speak TLS: "true" or nothing. */}}
{{- define "learnloop.tls" -}}
{{- if ne .Values.tls.mode "off" -}}
true
{{- end -}}
{{- end -}}

{{- define "learnloop.scheme" -}}
{{ ternary "http" "https" (eq .Values.tls.mode "off") }}
{{- end -}}

{{/* For httpGet of a probe: the kubelet looks at no certificate. */}}
{{- define "learnloop.probeScheme" -}}
{{ ternary "HTTP" "HTTPS" (eq .Values.tls.mode "off") }}
{{- end -}}

{{/* Suites of TLS 1.2, as Go and as OpenSSL name them; 1.3 has its own. */}}
{{- define "learnloop.tls.suites" -}}
[TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]
{{- end -}}
{{- define "learnloop.tls.ciphers" -}}
ECDHE+AESGCM:ECDHE+CHACHA20
{{- end -}}

{{/* The parts that serve: component → suffix of their names. */}}
{{- define "learnloop.tls.parts" -}}
operator: operator
dataPlane: data
{{- if .Values.nats.embedded }}
nats: nats
{{- end }}
{{- if ne (include "learnloop.postgres" .) "external" }}
postgresql: postgres
{{- end }}
{{- if .Values.prometheus.embedded }}
prometheus: prometheus
{{- end }}
{{- end -}}

{{/* Secret of one part's certificate. Call: (dict "root" $ "part" "dataPlane") */}}
{{- define "learnloop.tls.secret" -}}
{{- $suffix := get (include "learnloop.tls.parts" .root | fromYaml) .part -}}
{{- $own := get .root.Values.tls.secrets .part -}}
{{- if eq .root.Values.tls.mode "secret" -}}
{{- if not $own -}}
{{- fail (printf "tls.secrets.%s: is empty, but tls.mode is secret; name a Secret with tls.crt, tls.key and ca.crt" .part) -}}
{{- end -}}
{{ $own }}
{{- else -}}
{{ include "learnloop.fullname" .root }}-tls-{{ $suffix }}
{{- end -}}
{{- end -}}

{{- define "learnloop.tls.authority" -}}
{{ include "learnloop.fullname" . }}-tls-authority
{{- end -}}

{{/* The names that a part serves under, as JSON. The last one is that by which Prometheus knows whatever it scrapes.
     Call: (dict "root" $ "suffix" "data") */}}
{{- define "learnloop.tls.names" -}}
{{- $name := printf "%s-%s" (include "learnloop.fullname" .root) .suffix -}}
{{- $place := printf "%s.%s.svc" $name .root.Release.Namespace -}}
{{- $names := list $place (printf "%s.cluster.local" $place) (printf "%s.%s" $name .root.Release.Namespace) $name -}}
{{- if eq .suffix "nats" -}}
{{- $names = append $names (printf "*.%s-peers.%s.svc" $name .root.Release.Namespace) -}}
{{- end -}}
{{- if and (eq .suffix "postgres") (eq (include "learnloop.postgres" .root) "cluster") -}}
{{- range $kind := list "rw" "r" "ro" -}}
{{- $names = concat $names (list (printf "%s-%s.%s.svc" $name $kind $.root.Release.Namespace) (printf "%s-%s" $name $kind)) -}}
{{- end -}}
{{- end -}}
{{- if eq .suffix "data" -}}
{{- /* kubectl port-forward leads here. */ -}}
{{- $names = append $names "localhost" -}}
{{- end -}}
{{- append $names "workloads.learnloop.dev" | toJson -}}
{{- end -}}

{{/* The names of the pods in a namespace, as JSON: of its Services, and those by which metrics are read. */}}
{{- define "learnloop.tls.podNames" -}}
{{- list (printf "*.%s.svc" .) (printf "*.%s.svc.cluster.local" .) (printf "%s.workloads.learnloop.dev" .) "workloads.learnloop.dev" | toJson -}}
{{- end -}}

{{/* A part's volume: naming the keys holds the pod back until they are there. Call: (dict "root" $ "part" "nats") */}}
{{- define "learnloop.tls.volume" -}}
{{- if include "learnloop.tls" .root }}
- name: tls
  secret:
    secretName: {{ include "learnloop.tls.secret" . | quote }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end -}}

{{- define "learnloop.tls.mount" -}}
{{- if include "learnloop.tls" . }}
- {name: tls, mountPath: /run/tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* For our own programs: their certificates, and the authorities that they trust. */}}
{{- define "learnloop.tls.env" -}}
{{- if include "learnloop.tls" . }}
- {name: LEARNLOOP_TLS_CERTIFICATE, value: /run/tls/tls.crt}
- {name: LEARNLOOP_TLS_KEY, value: /run/tls/tls.key}
- {name: LEARNLOOP_TLS_CA, value: /run/tls/ca.crt}
{{- end }}
{{- end -}}

{{/* Runs a server that reads its certificate only on SIGHUP. The operator has the same text for the PostgreSQL
     of a MemoryService: memory_services/service_children.py. */}}
{{- define "learnloop.tls.follow" -}}
follow: |
  # follow STOP_SIGNAL COMMAND [ARGUMENT...]: runs COMMAND, and sends it SIGHUP when its certificate changed.
  set -u
  stop=$1; shift
  folder=${FOLLOW_FOLDER:-/run/tls}
  "$@" &
  server=$!
  trap 'kill -s "$stop" "$server"' TERM INT
  state() { cat "$folder"/* | cksum; }
  (
      trap - TERM INT
      before=$(state)
      while sleep "${FOLLOW_SECONDS:-10}"; do
          now=$(state)
          if [ "$now" != "$before" ]; then
              echo "the certificate has changed: the server reads it again"
              kill -s HUP "$server"
          fi
          before=$now
      done
  ) &
  watcher=$!
  wait "$server"
  code=$?
  # A signal ends the wait before the server has ended.
  while kill -0 "$server" 2>/dev/null; do
      wait "$server"
      code=$?
  done
  kill "$watcher" 2>/dev/null
  exit "$code"
{{- end -}}
