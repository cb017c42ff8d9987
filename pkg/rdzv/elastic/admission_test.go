package elastic

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestOpenStoreWarning checks that an agent which hosts a store without a secret warns once if other machines can reach
// the store, and not otherwise.
func TestOpenStoreWarning(t *testing.T) {
	for _, tt := range []struct {
		name, listen, secret string
		warnings             int
	}{
		{name: "every address", listen: ":0", warnings: 1},
		{name: "every address, with a secret", listen: ":0", secret: "the secret of the job"},
		{name: "loopback", listen: "127.0.0.1:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", tt.listen)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			a := &C10d{
				RunID: t.Name(), Secret: []byte(tt.secret), TTL: time.Second, Ports: []int{1},
				Logger: zerolog.New(&log).Level(zerolog.WarnLevel),
			}
			session, err := a.serve(t.Context(), a.newHost(ln, nil, nil))
			if err != nil {
				t.Fatal(err)
			}
			_ = session.Close(t.Context())
			if err := a.Close(t.Context(), true); err != nil {
				t.Error(err)
			}
			const want = "can read, change and end this job: it has no secret; elasticrun secret > FILE makes one"
			lines := strings.Count(log.String(), "\n")
			if strings.Count(log.String(), want) != tt.warnings || lines != tt.warnings {
				t.Errorf("got %d lines, want %d:\n%s", lines, tt.warnings, log.String())
			}
		})
	}
}
