module learnloop.dev/bench/gateway-weight

go 1.26.0

require sigs.k8s.io/gateway-api v1.4.0

require golang.org/x/sync v0.16.0 // indirect
