// Command coredns is CoreDNS with the six plugins a cluster's name server needs. Linking only those keeps
// the build at a few seconds: the stock plugin list pulls in every cloud provider's client library.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// The order is the order in which a query passes the plugins.
	dnsserver.Directives = []string{"bind", "errors", "health", "cache", "kubernetes", "forward"}
	coremain.Run()
}
