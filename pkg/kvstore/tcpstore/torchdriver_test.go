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

// TestTorch compares this package with each version of torch. Importing torch takes seconds of CPU time, so the tests
// of a version share one process. Quick runs leave out torch 2.6, which has the protocol of 2.14, and the official
// build, whose servers use libuv by default.
func TestTorch(t *testing.T) {
	t.Parallel()
	for _, build := range []torchBuild{
		{version: "1.13"},
		{version: "2.6"},
		{version: "2.14"},
		{version: testenv.Official, libuv: true},
		{version: testenv.Official},
	} {
		if build.version != "1.13" && build.version != "2.14" && !testenv.Whole(t) {
			continue
		}
		t.Run(build.String(), func(t *testing.T) {
			t.Parallel()
			d := startTorchDriver(t, build)
			t.Run("client", d.testClient)
			if build.version == "2.6" {
				return
			}
			t.Run("known differences", d.testKnownDifferences)
			t.Run("differential", d.testDifferential)
			if build.version == "1.13" {
				return
			}
			t.Run("client of another protocol", d.testClientOfOtherProtocol)
			t.Run("new operations", d.testNewOps)
			t.Run("helpers", d.testHelpers)
		})
	}
}

// torchBuild is a version of torch, as testenv calls it, and whether its TCPStore uses libuv.
type torchBuild struct {
	version string
	libuv   bool
}

func (b torchBuild) String() string {
	if b.version == testenv.Official && !b.libuv {
		return b.version + " without libuv"
	}
	return b.version
}

// torchDriver is a process that runs testdata/py/drive.py with torch until the test ends.
type torchDriver struct {
	torchBuild

	addr string
}

func startTorchDriver(t *testing.T, build torchBuild) *torchDriver {
	t.Helper()
	// It ends with its stdin; the test's own context would kill it before that.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), testenv.Torch(t, build.version), "testdata/py/drive.py",
		strconv.FormatBool(build.libuv))
	// Otherwise each timeout and each closed connection would log a warning and spend milliseconds on a stack trace.
	cmd.Env = append(os.Environ(), "TORCH_CPP_LOG_LEVEL=ERROR", "TORCH_SHOW_CPP_STACKTRACES=0", "OMP_NUM_THREADS=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, stdout := testenv.StartWithPipes(t, cmd)
	t.Cleanup(func() {
		stdin.Close()
		io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); t.Failed() {
			t.Logf("torch %s: %v\n%s", build, err, &stderr)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		cmd.Process.Kill()
		t.Fatalf("start drive.py with torch %s: %v", build, err)
	}
	return &torchDriver{torchBuild: build, addr: "127.0.0.1:" + strings.TrimSpace(line)}
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

// lane opens a lane that ends with the test.
func (d *torchDriver) lane(t *testing.T) *torchLane {
	t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	lane := &torchLane{conn: conn, in: json.NewDecoder(conn)}
	var hello torchAnswer
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if err := lane.in.Decode(&hello); err != nil {
		t.Fatalf("open lane: %v", err)
	}
	lane.server = net.JoinHostPort("127.0.0.1", strconv.Itoa(hello.Port))
	return lane
}

// run starts a script, which then has two minutes for all its replies.
func (l *torchLane) run(t *testing.T, script string) {
	t.Helper()
	l.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	l.send(t, map[string]string{"script": script})
}

func (l *torchLane) send(t *testing.T, message any) {
	t.Helper()
	if err := json.NewEncoder(l.conn).Encode(message); err != nil {
		t.Fatal(err)
	}
}

// play plays calls with torch's clients against the server at address.
func (l *torchLane) play(address string, calls []storetest.Call) ([]storetest.Outcome, error) {
	line, err := json.Marshal(map[string]any{"address": address, "calls": calls})
	if err != nil {
		return nil, err
	}
	l.conn.SetDeadline(time.Now().Add(2 * time.Minute))
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
