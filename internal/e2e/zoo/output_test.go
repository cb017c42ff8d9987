package zoo

import (
	"bytes"
	"crypto/rand"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// ways are the flags that send a stream to a destination. Each destination has its own path through the launcher.
var ways = map[string]string{"console": "--tee=0", "file and console": "--tee=3", "file": "--redirects=3"}

// TestMuchOutput checks that an endless line and a flood of lines arrive complete and are not kept in memory. make test
// has each way and each kind of output, and make soak all pairs of them.
func TestMuchOutput(t *testing.T) {
	t.Parallel()
	mib := testenv.Repeat(t, 64, 1024)
	for name, flag := range ways {
		for _, mode := range []string{"line", "flood"} {
			if quick := (mode == "flood") == (name == "console"); !quick && !testenv.Whole(t) {
				continue
			}
			t.Run(mode+" to "+name, func(t *testing.T) {
				t.Parallel()
				j := launch{flags: []string{flag}, args: []string{mode, strconv.Itoa(mib)}}.run(t)
				j.want(3, "worker_failed rank=1")
				want := int64(mib) << 20
				if name != "console" {
					if info, err := os.Stat(j.logPath("stdout.log")); err != nil || info.Size() != want {
						t.Errorf("stdout.log has %v bytes (%v), want %d", info, err, want)
					}
				}
				if shown := j.stdout.n; name == "file" && shown != 0 || name != "file" && shown < want {
					t.Errorf("the console showed %d of %d bytes", shown, want)
				}
			})
		}
	}
}

// TestBytesThatAreNoText checks that binary output passes unchanged, while a report that quotes it is plain text: it
// moves no cursor and clears no screen.
func TestBytesThatAreNoText(t *testing.T) {
	t.Parallel()
	for name, flag := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := launch{flags: []string{flag}, args: []string{"bytes"}}.run(t)
			j.want(3, "worker_failed rank=1")
			every := make([]byte, 256)
			for i := range every {
				every[i] = byte(i)
			}
			if name != "console" {
				for _, file := range []string{"stdout.log", "stderr.log"} {
					if data := j.logFile(file); !bytes.HasPrefix(data, every) || len(data) < 1256 {
						t.Errorf("%s has %q", file, data)
					}
				}
			}
			if name == "file" {
				report := j.stderr.String()
				if strings.ContainsFunc(report, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) ||
					!utf8.ValidString(report) {
					t.Errorf("the report is no text:\n%q", report)
				}
			}
		})
	}
}

// TestClosedStreams checks that a worker that closes its streams keeps running and that its end counts.
func TestClosedStreams(t *testing.T) {
	t.Parallel()
	for name, flag := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			launch{flags: []string{flag}, args: []string{"closed_output"}}.run(t).want(3, "worker_failed rank=1")
		})
	}
}

// TestStreamHeldOutside checks that a stream that a process outside the job holds open does not delay the job's end,
// and that the log mentions it.
func TestStreamHeldOutside(t *testing.T) {
	t.Parallel()
	name := "@elasticrun-zoo-" + rand.Text() // an abstract socket, because the path of a file can be too long
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held := make(chan int, 1)
	go func() { held <- takeDescriptor(t, l) }()
	j := launch{args: []string{"pass_stdout", name}}.start(t)
	fd := <-held
	defer func() { _ = unix.Close(fd) }()
	j.end()
	j.want(3, "worker_failed rank=1", "give up stdout: a process still has it open")
}

// takeDescriptor accepts one connection and the descriptor that comes with its first byte.
func takeDescriptor(t *testing.T, l net.Listener) int {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Error(err)
		return -1
	}
	defer c.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		t.Error(err)
		return -1
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		t.Errorf("%d messages (%v), want one", len(messages), err)
		return -1
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Errorf("descriptors %v (%v), want one", fds, err)
		return -1
	}
	return fds[0]
}

// TestReaderThatStops checks that a console reader that stops reading does not delay the end of a failed job.
func TestReaderThatStops(t *testing.T) {
	t.Parallel()
	if testenv.Repeat(t, 0, 1) == 0 {
		t.Skip("takes longer than a minute: make soak")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := launch{flags: []string{"--shutdown-timeout=1"}, args: []string{"endless"}, console: w}
	j := l.start(t)
	w.Close()
	j.end()
	j.want(3, "worker_failed rank=0", "did not reach the console")
}

// TestReaderThatGoes checks that a job survives the loss of its console reader.
func TestReaderThatGoes(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	j := launch{args: []string{"flood", "1"}, console: w}.start(t)
	w.Close()
	j.end()
	j.want(3, "worker_failed rank=1")
}
