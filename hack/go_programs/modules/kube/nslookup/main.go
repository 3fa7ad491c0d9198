// Command nslookup exits with 0 once a name resolves, and with 1 if it does not within two seconds.
//
// The training operator's init containers call it in a loop that sleeps two seconds between calls. Asking ten
// times a second in between lets workers start as soon as their master has a name.
package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: nslookup NAME")
		os.Exit(2)
	}
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if addresses, err := net.LookupHost(os.Args[1]); err == nil {
			fmt.Println(addresses)
			return
		}
	}
	fmt.Fprintln(os.Stderr, os.Args[1]+" does not resolve")
	os.Exit(1)
}
