// Nothing is built of this: manifests of what may run or queue training come with these modules, and tests apply them.
module learnloop.dev/hack/training-kinds

go 1.26

require (
	github.com/kubeflow/trainer/v2 v2.3.0
	sigs.k8s.io/jobset v0.12.0
	sigs.k8s.io/kueue v0.18.2
)
