package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestMain runs this test binary as the launcher if the variable asks for it.
func TestMain(m *testing.M) {
	if os.Getenv(isLauncher) == "" {
		os.Exit(m.Run())
	}
	main()
}

const isLauncher = "ELASTICRUN_TEST_LAUNCHER"

// node is one run of the program.
type node struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

// startNode starts the program for a job whose workers run script.
func startNode(t *testing.T, endpoint, mark, script string) *node {
	t.Helper()
	n := &node{Cmd: exec.CommandContext(t.Context(), os.Args[0], endpoint, "sh", "-c", script)}
	n.Env = append(os.Environ(), isLauncher+"=1", mark)
	n.Stdout, n.Stderr = &n.stdout, &n.stderr
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two nodes run a job together. A worker that fails once costs a restart of all workers, and one that always fails
// ends the job on both nodes.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		workers      []string // what the workers print
		failed       bool
		end          string
	}{
		{
			name:    "fails once",
			script:  `echo $RANK/$WORLD_SIZE.$TORCHELASTIC_RESTART_COUNT; test $RANK$TORCHELASTIC_RESTART_COUNT != 30 || exit 7`,
			workers: []string{"0/4.1", "1/4.1", "2/4.1", "3/4.0", "3/4.1"}, end: "SUCCEEDED after 1 restarts; cause \"\"; error: <nil>\n$",
		},
		{
			name: "fails always", script: `test $RANK != 0 || exit 7; exec sleep 1000`, failed: true,
			end: `FAILED after 3 restarts; cause "exited with code 7"; error: <nil>\n$`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			endpoint, mark := fmt.Sprint("127.0.0.1:", testenv.FreePort(t)), testenv.Mark()
			nodes := []*node{startNode(t, endpoint, mark, tc.script), startNode(t, endpoint, mark, tc.script)}
			printed := ""
			for _, n := range nodes {
				err := n.Wait()
				if (err != nil) != tc.failed || !regexp.MustCompile(tc.end).MatchString(n.stderr.String()) {
					t.Errorf("a node ended with %v, want %s:\n%s", err, tc.end, &n.stderr)
				}
				printed += n.stdout.String()
			}
			for _, line := range tc.workers {
				if strings.Count(printed, line+"\n") != 1 {
					t.Errorf("the workers printed\n%s\nwant once %s", printed, line)
				}
			}
			testenv.NothingLeft(t, mark)
		})
	}
}

// The example stays as short as its documentation says.
func TestLength(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if lines := bytes.Count(source, []byte("\n")); err != nil || lines > 60 {
		t.Errorf("main.go has %d lines, want 60 at most; %v", lines, err)
	}
}
