package topology

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeSMI writes a script nvidia-smi with this body into a new folder and returns the folder.
func fakeSMI(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	// No process may be forked while the file is open for writing: it would inherit the descriptor, and executing the
	// file would fail with "text file busy" until that process executes its own program (golang/go#22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestGPUsFromSMI(t *testing.T) {
	const listing = `case "$*" in
"--query-gpu=index,pci.bus_id,uuid --format=csv,noheader")
	echo "1, 00000000:CA:00.0, GPU-b"; echo "0, 00000000:17:00.0, GPU-a";;
*) echo "unexpected arguments: $*"; exit 2;;
esac`
	found := []GPU{
		{ID: "0", PCI: "0000:17:00.0", UUID: "GPU-a"},
		{ID: "1", PCI: "0000:ca:00.0", UUID: "GPU-b"},
	}
	noNodes := files(
		map[string]string{"proc/driver/nvidia/gpus/0000:17:00.0/information": gpuInformation("GPU-a", "0", "No")},
	)
	tests := []struct {
		name    string
		script  string
		machine fstest.MapFS
		visible string // "unset" means not in the environment
		needPCI bool
		want    []GPU
		err     string // @ stands for the script's path
	}{
		{name: "two", script: listing, visible: "unset", want: found},
		{name: "device nodes not made yet", script: listing, machine: noNodes, visible: "unset", want: found},
		{
			name:    "not asked where the driver's list is enough",
			script:  "exit 3",
			machine: fourGPUs(),
			visible: "0",
			needPCI: true,
			want:    []GPU{{ID: "0", PCI: "0000:17:00.0", UUID: "GPU-aaaa0000-0000"}},
		},
		{name: "not asked to count a list", script: "exit 3", visible: "1,0", want: []GPU{{ID: "1"}, {ID: "0"}}},
		{name: "not asked for an empty list", script: "exit 3", visible: "", needPCI: true},
		{name: "asked for addresses", script: listing, visible: "1,0,2", needPCI: true, want: []GPU{found[1], found[0]}},
		{name: "no devices", script: "echo No devices were found; exit 6", visible: "unset"},
		{name: "nothing printed", script: "exit 0", visible: "unset"},
		{
			name: "driver not loaded", visible: "unset",
			script: "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\nMake sure it runs.\"; exit 9",
			err:    "count GPUs with @: exit status 9 (NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.): repair it, set CUDA_VISIBLE_DEVICES or give the number of workers",
		},
		{
			name: "complaint on stderr", visible: "unset", script: "echo found; echo lost >&2; exit 15",
			err: "count GPUs with @: exit status 15 (lost): repair it, set CUDA_VISIBLE_DEVICES or give the number of workers",
		},
		{
			name:    "silent failure",
			visible: "unset",
			script:  "exit 1",
			err:     "count GPUs with @: exit status 1: repair it, set CUDA_VISIBLE_DEVICES or give the number of workers",
		},
		{
			name:    "other words",
			visible: "unset",
			script:  "echo hello",
			err:     `count GPUs with @: it printed "hello" in place of index, PCI address and UUID`,
		},
		{
			name:    "no index",
			visible: "unset",
			script:  "echo 'x, 00000000:17:00.0, GPU-a'",
			err:     `count GPUs with @: it printed "x, 00000000:17:00.0, GPU-a", which does not start with an index`,
		},
		{
			name:    "no address",
			visible: "unset",
			script:  "echo '0, [N/A], GPU-a'",
			err:     `count GPUs with @: it printed "0, [N/A], GPU-a": "[N/A]" is not a PCI address`,
		},
		{
			name: "endless", visible: "unset", script: "exec head -c 1048577 /dev/zero",
			err: "count GPUs with @: it printed more than 1 MiB: repair it, set CUDA_VISIBLE_DEVICES or give the number of workers",
		},
		{
			name:    "a gap",
			visible: "unset",
			script:  "echo '1, 00000000:17:00.0, GPU-a'",
			err:     "count GPUs with @: it lists GPU index 1 where 0 is expected",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := fakeSMI(t, tt.script)
			env := map[string]string{"PATH": "/nonexistent:" + dir}
			if tt.visible != "unset" {
				env["CUDA_VISIBLE_DEVICES"] = tt.visible
			}
			got, err := GPUs(t.Context(), GPUOptions{Root: tt.machine, Env: environment(env), NeedPCI: tt.needPCI})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
			wantErr := strings.ReplaceAll(tt.err, "@", filepath.Join(dir, "nvidia-smi"))
			if diff := cmp.Diff(wantErr, errorText(err)); diff != "" {
				t.Errorf("GPUs error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKnownGPUs checks that KnownGPUs runs nothing, and says when it would have to.
func TestKnownGPUs(t *testing.T) {
	noNodes := files(
		map[string]string{"proc/driver/nvidia/gpus/0000:17:00.0/information": gpuInformation("GPU-a", "0", "No")},
	)
	for _, tt := range []struct {
		name    string
		machine fstest.MapFS
		visible *string
		count   int
		known   bool
	}{
		{name: "no list of the driver's"},
		{name: "device nodes not made yet", machine: noNodes},
		{name: "the driver's list", machine: fourGPUs(), count: 4, known: true},
		{name: "chosen", machine: fourGPUs(), visible: new("3,1,4"), count: 2, known: true},
		{name: "chosen, and believed", visible: new("1,0,GPU-a"), count: 2, known: true},
		{name: "hidden", visible: new(""), known: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := filepath.Join(t.TempDir(), "asked")
			env := map[string]string{"PATH": fakeSMI(t, "touch "+asked)}
			if tt.visible != nil {
				env["CUDA_VISIBLE_DEVICES"] = *tt.visible
			}
			gpus, err := KnownGPUs(GPUOptions{Root: tt.machine, Env: environment(env)})
			if len(gpus) != tt.count || errors.Is(err, ErrOnlySMI) == tt.known {
				t.Errorf("%v, %v; want %d, %v", gpus, err, tt.count, tt.known)
			}
			if _, err := os.Stat(asked); err == nil {
				t.Error("nvidia-smi was run")
			}
		})
	}
}

func BenchmarkKnownGPUs(b *testing.B) {
	for b.Loop() {
		_, _ = KnownGPUs(GPUOptions{})
	}
}

func TestSMITimeout(t *testing.T) {
	program := filepath.Join(fakeSMI(t, "exec sleep 600"), "nvidia-smi")
	_, err := askSMI(t.Context(), program, 50*time.Millisecond)
	if want := "count GPUs with " + program + ": no answer: no end within 50ms: set CUDA_VISIBLE_DEVICES or give the number of workers"; errorText(
		err,
	) != want {
		t.Errorf("error %q, want %q", errorText(err), want)
	}
}

// TestSMIKillsItsChildren checks that the end of the context kills all processes that nvidia-smi has started: a pipe
// that only they hold for writing reaches its end.
func TestSMIKillsItsChildren(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(fakeSMI(t, "exec 3>"+fifo+"\n(echo up >&3; exec sleep 600) &\nwait"), "nvidia-smi")
	ctx, cancel := context.WithCancel(t.Context())
	rest := make(chan string, 1)
	go func() {
		defer close(rest)
		defer cancel()
		pipe, err := os.Open(fifo)
		if err != nil {
			t.Error(err)
			return
		}
		defer pipe.Close()
		reader := bufio.NewReader(pipe)
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		cancel()
		more, err := io.ReadAll(reader)
		if err != nil {
			t.Error(err)
		}
		rest <- line + string(more)
	}()
	_, err := askSMI(ctx, program, time.Minute)
	if want := "count GPUs with " + program + ": context canceled"; errorText(err) != want {
		t.Errorf("error %q, want %q", errorText(err), want)
	}
	if got := <-rest; got != "up\n" {
		t.Errorf("the script wrote %q", got)
	}
}
