package elastic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// The error of a worker store that is not reached says what happened at each address, in words.
func TestReachError(t *testing.T) {
	port := testenv.FreePort(t)
	_, err := reach(t.Context(), rounds.Offer{Addrs: []string{"127.0.0.1", "127.0.0.2"}, Port: port, Nonce: "00"})
	if err == nil {
		t.Fatal("an address answers")
	}
	rest, ok := strings.CutPrefix(err.Error(), fmt.Sprintf("none of its addresses answers: 127.0.0.1:%d: ", port))
	if !ok || !strings.Contains(rest, fmt.Sprintf("; 127.0.0.2:%d: ", port)) || strings.Contains(rest, "dial tcp") {
		t.Error(err)
	}
}
