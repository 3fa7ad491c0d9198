{{/* Of the StatefulSet. A cluster keeps its streams elsewhere than one server alone: it would take that one's for orphans and
     delete them. */}}
{{- define "learnloop.nats.name" -}}
{{ include "learnloop.fullname" . }}-nats{{ if gt (int .Values.nats.replicas) 1 }}-cluster{{ end }}
{{- end -}}

{{- define "learnloop.nats.config" -}}
nats.conf: |
  port: 4222
  http_port: 8222
  server_name: $HOSTNAME
  # A trajectory of ten thousand steps fits.
  max_payload: 8MB
  {{- if include "learnloop.tls" . }}
  tls {
    cert_file: /run/tls/tls.crt
    key_file: /run/tls/tls.key
    min_version: "1.2"
    cipher_suites: {{ include "learnloop.tls.suites" . }}
  }
  {{- end }}
  jetstream {
    store_dir: /data
  }
  {{- if gt (int .Values.nats.replicas) 1 }}
  cluster {
    name: learnloop
    listen: 0.0.0.0:6222
    # Clients find the others by the Service: certificates bear names, no pods' addresses.
    no_advertise: true
    tls {
      cert_file: /run/tls/tls.crt
      key_file: /run/tls/tls.key
      ca_file: /run/tls/ca.crt
      # A certificate of the same authority is not enough: it must be one of these servers'.
      verify_cert_and_check_known_urls: true
      min_version: "1.2"
      cipher_suites: {{ include "learnloop.tls.suites" . }}
    }
    routes: [
      {{- range until (int .Values.nats.replicas) }}
      tls://{{ include "learnloop.nats.name" $ }}-{{ . }}.{{ include "learnloop.fullname" $ }}-nats-peers.{{ $.Release.Namespace }}.svc:6222
      {{- end }}
    ]
  }
  {{- end }}
  # The public half of the issuer's key and the data plane's users, one for each password that holds: written by the init
  # container. Includes are relative to this file.
  include ../../run/issuer/issuer.conf
  # The streams are in an account that no tenant is in. JetStream acknowledges to any subject that a publisher names, with
  # the server's own rights; so tenants publish where there is no JetStream, and the data plane alone hears and answers.
  accounts {
    LEARNLOOP {
      jetstream: enabled
      users: $LEARNLOOP_USERS
      exports: [
        {stream: "agent.rl.reward.v1.>"}
        {stream: "agent.rl.training.status.v1.>"}
        {stream: "agent.rl.model.deployed.v1.>"}
      ]
    }
    TENANTS {
      users: $LEARNLOOP_TENANTS_USERS
      imports: [
        {stream: {account: LEARNLOOP, subject: "agent.rl.reward.v1.>"}}
        {stream: {account: LEARNLOOP, subject: "agent.rl.training.status.v1.>"}}
        {stream: {account: LEARNLOOP, subject: "agent.rl.model.deployed.v1.>"}}
      ]
    }
  }
  authorization {
    # Everybody else comes with a service-account token: the data plane says for which namespace it speaks.
    auth_callout {
      issuer: $LEARNLOOP_ISSUER
      account: LEARNLOOP
      auth_users: $LEARNLOOP_KNOWN_USERS
    }
  }
{{- end -}}
