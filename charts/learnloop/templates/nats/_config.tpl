{{- define "learnloop.nats.config" -}}
nats.conf: |
  port: 4222
  http_port: 8222
  server_name: $HOSTNAME
  # A trajectory of ten thousand steps fits.
  max_payload: 8MB
  jetstream {
    store_dir: /data
  }
  authorization {
    user: learnloop
    password: $NATS_PASSWORD
  }
{{- end -}}
