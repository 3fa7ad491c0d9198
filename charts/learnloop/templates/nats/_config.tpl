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
  # The public half of the issuer's key, written by the init container. Includes are relative to this file.
  include ../../run/issuer/issuer.conf
  authorization {
    users: [{user: learnloop, password: $NATS_PASSWORD}]
    # Everybody else comes with a service-account token: the data plane says for which namespace it speaks.
    auth_callout {
      issuer: $LEARNLOOP_ISSUER
      auth_users: [learnloop]
    }
  }
{{- end -}}
