package coord

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// serveTorch is a torch server that ends with its stdin. Its argument is the TCPStore's further arguments.
const serveTorch = `
import sys, torch.distributed as d
s = d.TCPStore("127.0.0.1", 0, 1, True, **eval(sys.argv[1]))
print(s.port, flush=True)
sys.stdin.read()
`

// TestDetectTorch connects to a TCPStore of each torch version.
func TestDetectTorch(t *testing.T) {
	t.Parallel()
	type server struct{ version, args string }
	servers := []server{{"1.13", "{}"}, {"2.14", "{'use_libuv': False}"}}
	if testenv.Whole(t) { // 2.6 answers like 2.14; the official build has libuv
		servers = append(servers, server{"2.6", "{'use_libuv': False}"}, server{testenv.Official, "{}"})
	}
	for _, tc := range servers {
		t.Run(tc.version+" "+tc.args, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), testenv.Torch(t, tc.version), "-c", serveTorch,
				tc.args)
			cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "TORCH_CPP_LOG_LEVEL=ERROR")
			stdin, stdout := testenv.StartWithPipes(t, cmd)
			defer cmd.Wait()
			defer stdin.Close()
			port, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			_, err = Dial(t.Context(), DialOptions{Addr: "127.0.0.1:" + strings.TrimSpace(port)})
			var obstacle *DialError
			if !errors.As(err, &obstacle) || obstacle.Obstacle != ObstacleTorch || errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		})
	}
}
