// Nothing is built of this: the definitions of other projects' kinds come with these modules, and manifests are checked by them.
module learnloop.dev/hack/definitions

go 1.26

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	github.com/ray-project/kuberay/ray-operator v1.5.0
)
