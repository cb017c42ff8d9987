package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// stampEnv names the folder of the record. With it, this test binary is a worker of benchmarks: it adds its start time
// and the time of its stop signal to the record. It does nothing else, so it starts and stops at once.
const stampEnv = "ELASTICRUN_TEST_STAMP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(stampEnv); dir != "" {
		os.Exit(stamp(dir))
	}
	if os.Getenv("ELASTICRUN_SOAK") == "" {
		testenv.Parallel(6)
	} else {
		testenv.Parallel(3) // real torch, which make soak has more of, computes
	}
	os.Exit(m.Run())
}

// stamp is the worker. Its lines have the form of ddp_train.py's.
func stamp(dir string) int {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	begin := monotonic()
	number := func(name string) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		return n
	}
	host, _ := os.Hostname()
	l := line{
		Event: "start", Time: begin, Round: number("ELASTICRUN_ROUND"), Restart: number("TORCHELASTIC_RESTART_COUNT"),
		World: number("WORLD_SIZE"), Rank: number("RANK"), Local: number("LOCAL_RANK"), Group: number("GROUP_RANK"),
		Host: host, PID: os.Getpid(),
	}
	name := filepath.Join(dir, "log", fmt.Sprintf("%d.%s.%d.jsonl", l.Round, host, l.Local))
	out, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	lines := json.NewEncoder(out)
	if err := lines.Encode(l); err != nil {
		panic(err)
	}
	<-stopped
	l.Event, l.Time = "term", monotonic()
	if err := lines.Encode(l); err != nil {
		panic(err)
	}
	return 128 + int(syscall.SIGTERM)
}

// monotonic returns the clock that all hosts of one machine share, in seconds.
func monotonic() float64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Linux has this clock
	}
	return float64(now.Sec) + float64(now.Nsec)/1e9
}
