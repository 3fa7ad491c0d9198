// kstatus reads objects as JSON, and prints what sigs.k8s.io/cli-utils makes of each: a line with status and message.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	objects, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for objects.More() {
		var text json.RawMessage
		var object unstructured.Unstructured
		check(objects.Decode(&text))
		check(object.UnmarshalJSON(text))
		result, err := status.Compute(&object)
		check(err)
		check(results.Encode(map[string]string{"status": string(result.Status), "message": result.Message}))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
