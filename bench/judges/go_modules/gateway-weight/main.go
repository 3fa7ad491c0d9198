// gateway-weight asks a gateway 500 times and judges the answers as the Gateway API's own HTTPRouteWeight test does, with
// as many tries. usage: gateway-weight URL HOST NAME=SHARE...; the first word of each answer's body is the backend's name.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"sigs.k8s.io/gateway-api/conformance/utils/weight"
)

func main() {
	expected := map[string]float64{}
	for _, argument := range os.Args[3:] {
		name, share, _ := strings.Cut(argument, "=")
		value, err := strconv.ParseFloat(share, 64)
		check(err)
		expected[name] = value
	}
	sender := weight.NewFunctionBasedSender(func() (string, error) {
		request, err := http.NewRequest(http.MethodPost, os.Args[1], strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		request.Host = os.Args[2]
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%d: %s %v", answer.StatusCode, body, err)
		}
		return strings.Fields(string(body))[0] + "-deployment-pod", nil
	})
	var err error
	for try := 0; try < weight.MaxTestRetries; try++ {
		if err = weight.TestWeightedDistribution(sender, expected); err == nil {
			return
		}
	}
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
