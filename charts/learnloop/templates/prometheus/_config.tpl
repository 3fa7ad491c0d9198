{{- define "learnloop.prometheus.rules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- end -}}

{{/* Targets are all pods with the label, in any namespace: bounded in size, and the namespace is Kubernetes' word,
     never the target's. */}}
{{- define "learnloop.prometheus.config" -}}
{{- $namespaces := include "learnloop.namespaces" . | fromJsonArray -}}
prometheus.yml: |
  global:
    scrape_interval: {{ .Values.prometheus.scrapeInterval }}
    scrape_timeout: {{ .Values.prometheus.scrapeInterval }}
    evaluation_interval: 1m
  {{- if .Values.alerts.embedded }}
  rule_files: [/etc/prometheus/alerts.yml]
  {{- end }}
  scrape_configs:
    - job_name: learnloop
      honor_labels: false
      honor_timestamps: false
      {{- if include "learnloop.tls" . }}
      # Targets are asked by their addresses; the name is that of whatever has a certificate of ours.
      tls_config:
        ca_file: /run/tls/ca.crt
        server_name: workloads.learnloop.dev
      {{- end }}
      sample_limit: 10000
      label_limit: 32
      label_value_length_limit: 512
      body_size_limit: 8MB
      kubernetes_sd_configs:
        - role: pod
          {{- with $namespaces }}
          namespaces:
            names: {{ toJson . }}
          {{- end }}
          selectors:
            - role: pod
              label: app.kubernetes.io/part-of=learnloop
      relabel_configs:
        - source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scrape]
          action: keep
          regex: "true"
        - source_labels: [__meta_kubernetes_pod_phase]
          action: drop
          regex: Pending|Succeeded|Failed
        - source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scheme]
          target_label: __scheme__
          regex: (https?)
        - source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_path]
          target_label: __metrics_path__
          regex: (/.*)
        # A pod with several ports is still one target.
        - source_labels: [__address__, __meta_kubernetes_pod_annotation_prometheus_io_port]
          target_label: __address__
          regex: (.+?)(?::\d+)?;(\d+)
          replacement: $1:$2
        - source_labels: [__meta_kubernetes_namespace]
          target_label: namespace
        - source_labels: [__meta_kubernetes_pod_name]
          target_label: pod
        - source_labels: [__meta_kubernetes_pod_label_app_kubernetes_io_component]
          target_label: component
{{- if .Values.alerts.embedded }}
alerts.yml: |
  {{- .Files.Get "rules/alerts.yaml" | nindent 2 }}
{{- end }}
{{- if include "learnloop.tls" . }}
web.yml: |
  tls_server_config:
    cert_file: /run/tls/tls.crt
    key_file: /run/tls/tls.key
    cipher_suites: {{ include "learnloop.tls.suites" . }}
{{- end }}
{{- end -}}

{{/* Three quarters of a volume's size, as Prometheus writes it (its MB are MiB): the log of the last hours and the next
compaction need room too. */}}
{{- define "learnloop.prometheus.room" -}}
{{- $mebibytes := dict "Mi" 1 "Gi" 1024 "Ti" 1048576 -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- printf "%dMB" (div (mul $number (get $mebibytes (regexFind "[A-Z]i$" .)) 3) 4) -}}
{{- end -}}
