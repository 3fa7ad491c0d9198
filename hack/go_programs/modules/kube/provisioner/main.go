// Command provisioner gives the local cluster a default StorageClass: one folder of this machine per claim.
//
// It runs on the host, next to the kubelet, so a claim costs one mkdir and no helper pod. Volumes are of the
// kind "local", not "hostPath": the kubelet applies a pod's fsGroup to the former only, and without it a
// non-root container could not write to its volume.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const provisionerName = "learnloop.dev/local-folder"

type folders struct {
	root string
	node string
}

// Provision makes the folder and describes it as a volume that only this node can mount.
func (f folders) Provision(
	_ context.Context, options controller.ProvisionOptions,
) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(f.root, options.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	// MkdirAll obeys the umask; pods without an fsGroup still have to be able to write.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return f.describe(options, path), controller.ProvisioningFinished, nil
}

func (f folders) describe(options controller.ProvisionOptions, path string) *v1.PersistentVolume {
	onThisNode := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{
		Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{f.node},
	}}}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity: v1.ResourceList{
				v1.ResourceStorage: options.PVC.Spec.Resources.Requests[v1.ResourceStorage],
			},
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{onThisNode},
			}},
		},
	}
}

// Delete removes the folder of a released volume, and refuses any path outside the root.
func (f folders) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	if volume.Spec.Local == nil || filepath.Dir(volume.Spec.Local.Path) != f.root {
		return errors.New("volume " + volume.Name + " does not lie in " + f.root)
	}
	return os.RemoveAll(volume.Spec.Local.Path)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a user who may manage persistent volumes")
	root := flag.String("root", "", "folder that holds one folder per volume")
	node := flag.String("node", "", "name of the node this machine is")
	flag.Parse()
	ctx := context.Background()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	provision := controller.NewProvisionController(
		ctx, kubernetes.NewForConfigOrDie(config), provisionerName,
		folders{root: filepath.Clean(*root), node: *node}, controller.LeaderElection(false),
	)
	provision.Run(ctx)
}
