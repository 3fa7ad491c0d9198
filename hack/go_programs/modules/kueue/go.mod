// Nothing is built of this: the definition of a queue's workloads comes with this module, and tests apply it.
module learnloop.dev/hack/kueue

go 1.26

require sigs.k8s.io/kueue v0.18.2
