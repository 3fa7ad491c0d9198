// Command router is a plugin of Argo Rollouts that writes a canary's weight into an HTTPRoute of the Gateway API.
//
// It has what a comparison needs: the last rule of one route, whose backends are the Rollout's stable and canary
// Services. Argo Rollouts starts it and calls it by its own plugin protocol.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/rollout/trafficrouting/plugin/rpc"
	"github.com/argoproj/argo-rollouts/utils/plugin/types"
	"github.com/hashicorp/go-plugin"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	name    = "learnloop/gateway-api"
	timeout = 10 * time.Second
)

var routes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}

type router struct{ client dynamic.Interface }

// InitPlugin connects to the cluster of KUBECONFIG.
func (r *router) InitPlugin() types.RpcError {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		r.client, err = dynamic.NewForConfig(config)
	}
	return failure(err)
}

// SetWeight gives the canary's Service that many percent, and the stable one the rest.
func (r *router) SetWeight(rollout *v1alpha1.Rollout, weight int32, _ []v1alpha1.WeightDestination) types.RpcError {
	return failure(r.set(rollout, int64(weight)))
}

func (r *router) set(rollout *v1alpha1.Rollout, weight int64) error {
	canary := rollout.Spec.Strategy.Canary
	var asked struct {
		HTTPRoute string `json:"httpRoute"`
	}
	if err := json.Unmarshal(canary.TrafficRouting.Plugins[name], &asked); err != nil {
		return fmt.Errorf("settings of plugin %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	own := r.client.Resource(routes).Namespace(rollout.Namespace)
	route, err := own.Get(ctx, asked.HTTPRoute, metav1.GetOptions{})
	if err != nil {
		return err
	}
	changed, err := weigh(route, map[string]int64{canary.StableService: 100 - weight, canary.CanaryService: weight})
	if err != nil || !changed {
		return err
	}
	_, err = own.Update(ctx, route, metav1.UpdateOptions{FieldManager: name})
	return err
}

// weigh sets the weights of the last rule's backends by their names.
func weigh(route *unstructured.Unstructured, weights map[string]int64) (bool, error) {
	rules, found, err := unstructured.NestedSlice(route.Object, "spec", "rules")
	if err != nil || !found || len(rules) == 0 {
		return false, fmt.Errorf("HTTPRoute %s has no rules: %v", route.GetName(), err)
	}
	last, ok := rules[len(rules)-1].(map[string]any)
	if !ok {
		return false, fmt.Errorf("HTTPRoute %s: its last rule is not an object", route.GetName())
	}
	backends, _, err := unstructured.NestedSlice(last, "backendRefs")
	if err != nil {
		return false, err
	}
	changed, matched := false, 0
	for _, item := range backends {
		backend, ok := item.(map[string]any)
		if !ok {
			continue
		}
		service, _ := backend["name"].(string)
		wanted, known := weights[service]
		if !known {
			continue
		}
		matched++
		if had, set := backend["weight"].(int64); !set || had != wanted {
			backend["weight"], changed = wanted, true
		}
	}
	if matched != len(weights) {
		return false, fmt.Errorf("HTTPRoute %s lacks a backend of %v", route.GetName(), weights)
	}
	last["backendRefs"] = backends
	return changed, unstructured.SetNestedSlice(route.Object, rules, "spec", "rules")
}

func failure(err error) types.RpcError {
	if err == nil {
		return types.RpcError{}
	}
	return types.RpcError{ErrorString: err.Error()}
}

// UpdateHash has nothing to do: a route names Services, not revisions.
func (r *router) UpdateHash(*v1alpha1.Rollout, string, string, []v1alpha1.WeightDestination) types.RpcError {
	return types.RpcError{}
}

// SetHeaderRoute is asked for by no Rollout of the bench.
func (r *router) SetHeaderRoute(*v1alpha1.Rollout, *v1alpha1.SetHeaderRoute) types.RpcError {
	return types.RpcError{ErrorString: "routes by header are not among what this router can do"}
}

// SetMirrorRoute is asked for by no Rollout of the bench.
func (r *router) SetMirrorRoute(*v1alpha1.Rollout, *v1alpha1.SetMirrorRoute) types.RpcError {
	return types.RpcError{ErrorString: "mirroring is not among what this router can do"}
}

// VerifyWeight leaves it at what the API server took.
func (r *router) VerifyWeight(
	*v1alpha1.Rollout, int32, []v1alpha1.WeightDestination,
) (types.RpcVerified, types.RpcError) {
	return types.NotImplemented, types.RpcError{}
}

// RemoveManagedRoutes has nothing to remove: this router makes no routes.
func (r *router) RemoveManagedRoutes(*v1alpha1.Rollout) types.RpcError { return types.RpcError{} }

// Type is how messages call it.
func (r *router) Type() string { return name }

func main() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion:  1,
			MagicCookieKey:   "ARGO_ROLLOUTS_RPC_PLUGIN",
			MagicCookieValue: "trafficrouter",
		},
		Plugins: map[string]plugin.Plugin{"RpcTrafficRouterPlugin": &rpc.RpcTrafficRouterPlugin{Impl: &router{}}},
	})
}
