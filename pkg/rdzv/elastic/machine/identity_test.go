package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// uniqueRunID returns a run id that no other test, and no other process of this machine, has.
func uniqueRunID(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
}

func identify(t *testing.T, runID string, hint int) *Identity {
	t.Helper()
	id, err := Identify(runID, hint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = id.Close() })
	return id
}

// slotOf returns the part of a name after the last slash.
func slotOf(id *Identity) string { return id.Name[strings.LastIndexByte(id.Name, '/')+1:] }

// An agent gets the lowest free slot of its run.
func TestIdentify(t *testing.T) {
	run := uniqueRunID(t)
	first, second := identify(t, run, -1), identify(t, run, -1)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if first.Host != host || !strings.HasPrefix(first.Name, "machine:") || slotOf(first) != "0" {
		t.Errorf("the first is %+v", first)
	}
	if slotOf(second) != "1" {
		t.Errorf("the second is %+v beside %+v", second, first)
	}
	third := identify(t, run, -1)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if again := identify(t, run, -1); again.Name != second.Name {
		t.Errorf("the agent that replaces %+v is %+v, beside %+v", second, again, third)
	}
	if other := identify(t, run+"-other", -1); other.Name != first.Name {
		t.Errorf("another run's first is %+v, want a run to know nothing of others", other)
	}
}

// Each hint has slots of its own: agents of one machine that restart in another order must get their names again.
func TestIdentifyWithHints(t *testing.T) {
	run := uniqueRunID(t)
	none, zero, one, also := identify(t, run, -1), identify(t, run, 0), identify(t, run, 1), identify(t, run, 1)
	for want, id := range map[string]*Identity{"hint:0/0": zero, "hint:1/0": one, "hint:1/1": also} {
		if id.Name != want {
			t.Errorf("name %s, want %s", id.Name, want)
		}
	}
	if slotOf(none) != "0" {
		t.Errorf("without a hint the name is %s", none.Name)
	}
}

func TestIdentifyWithLongRunIDs(t *testing.T) {
	run := strings.Repeat("x", 5000) + uniqueRunID(t)
	if a, b := identify(t, run, 1), identify(t, run, 1); slotOf(a) != "0" || slotOf(b) != "1" {
		t.Errorf("the slots are %s and %s", slotOf(a), slotOf(b))
	}
	if other := identify(t, run+"y", 1); slotOf(other) != "0" {
		t.Errorf("a run whose id differs at the end has slot %s", slotOf(other))
	}
}

// holdSlot is the variable with the run of which TestSlotHolder holds a slot.
const holdSlot = "ELASTICRUN_TEST_HOLD_SLOT"

// TestSlotHolder runs in another process for the tests below.
func TestSlotHolder(t *testing.T) {
	run := os.Getenv(holdSlot)
	if run == "" {
		return
	}
	id := identify(t, run, -1)
	fmt.Println(id.Name)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A slot is free only once its holder is dead.
func TestSlotOfDeadProcess(t *testing.T) {
	run := uniqueRunID(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSlotHolder$")
	cmd.Env = append(os.Environ(), holdSlot+"="+run)
	_, out := testenv.StartWithPipes(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(line)
	if beside := identify(t, run, -1); beside.Name == name || slotOf(beside) != "1" {
		t.Errorf("%+v beside a living holder of %s", beside, name)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if after := identify(t, run, -1); after.Name != name {
		t.Errorf("%+v after the death of the holder of %s", after, name)
	}
}

// A worker that outlives its agent does not hold the agent's slot.
func TestSlotIsNotInherited(t *testing.T) {
	run := uniqueRunID(t)
	id := identify(t, run, -1)
	worker := exec.CommandContext(t.Context(), "cat")
	stdin, err := worker.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
	if again := identify(t, run, -1); again.Name != id.Name {
		t.Errorf("%+v while a worker lives, want %+v", again, id)
	}
	_ = stdin.Close()
	if err := worker.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestMachineOf(t *testing.T) {
	a, b := machineOf("h", []string{"boot", "net:1"}), machineOf("h", []string{"boot", "net:2"})
	if a == b || a != machineOf("h", []string{"boot", "net:1"}) {
		t.Errorf("two network namespaces of a machine are %s and %s", a, b)
	}
	if a == machineOf("clone", []string{"boot", "net:1"}) {
		t.Error("a running machine's clone, which was given another host name, is the same machine")
	}
	if unknown := machineOf("h", nil); unknown != "host:h" {
		t.Errorf("a machine without facts is %s", unknown)
	}
}

func TestLowestSlot(t *testing.T) {
	_, _, err := lowestSlot(func(int) (io.Closer, error) { return nil, syscall.EADDRINUSE })
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "all 4096 are taken") {
		t.Errorf("all slots taken: %v", err)
	}
	n, _, err := lowestSlot(func(int) (io.Closer, error) { return nil, syscall.EACCES })
	if n != 0 || !errors.Is(err, syscall.EACCES) {
		t.Errorf("no slot may be taken: %d, %v", n, err)
	}
}
