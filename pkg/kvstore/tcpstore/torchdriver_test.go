package tcpstore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
)

// torchDriver is a process that runs testdata/py/drive.py with torch until the test ends.
type torchDriver struct{ addr string }

func startTorchDriver(t *testing.T, version string) *torchDriver {
	t.Helper()
	// It ends with its stdin; the test's own context would kill it before that.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), testenv.Torch(t, version), "testdata/py/drive.py")
	// Otherwise each timeout and each closed connection would log a warning and spend milliseconds on a stack trace.
	cmd.Env = append(os.Environ(), "TORCH_CPP_LOG_LEVEL=ERROR", "TORCH_SHOW_CPP_STACKTRACES=0", "OMP_NUM_THREADS=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); t.Failed() {
			t.Logf("torch %s: %v\n%s", version, err, &stderr)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		cmd.Process.Kill()
		t.Fatalf("start drive.py with torch %s: %v", version, err)
	}
	return &torchDriver{addr: "127.0.0.1:" + strings.TrimSpace(line)}
}

// torchLane is a connection to a driver, with a torch server of its own and torch clients for any server.
type torchLane struct {
	conn   net.Conn
	in     *json.Decoder
	server string // the address of the torch server
}

// torchAnswer is a line of output of the driver.
type torchAnswer struct {
	Port     int
	Outcomes []storetest.Outcome
	Failure  string
}

func (d *torchDriver) lane(ctx context.Context) (*torchLane, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", d.addr)
	if err != nil {
		return nil, err
	}
	lane := &torchLane{conn: conn, in: json.NewDecoder(conn)}
	var hello torchAnswer
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if err := lane.in.Decode(&hello); err != nil {
		conn.Close()
		return nil, fmt.Errorf("open lane: %w", err)
	}
	lane.server = net.JoinHostPort("127.0.0.1", strconv.Itoa(hello.Port))
	return lane, nil
}

// play plays calls with torch's clients against the server at address.
func (l *torchLane) play(address string, calls []storetest.Call) ([]storetest.Outcome, error) {
	line, err := json.Marshal(map[string]any{"address": address, "calls": calls})
	if err != nil {
		return nil, err
	}
	l.conn.SetDeadline(time.Now().Add(2 * storetest.LongWait * time.Millisecond))
	if _, err := l.conn.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	var answer torchAnswer
	if err := l.in.Decode(&answer); err != nil {
		return nil, fmt.Errorf("torch's answer: %w", err)
	}
	if answer.Failure != "" {
		return nil, errors.New(answer.Failure)
	}
	if len(answer.Outcomes) != len(calls) {
		return nil, fmt.Errorf("torch gave %d outcomes for %d calls", len(answer.Outcomes), len(calls))
	}
	return answer.Outcomes, nil
}
