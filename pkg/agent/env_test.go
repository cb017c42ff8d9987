package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// envInput is what the environment of the worker with local rank 1 depends on.
type envInput struct {
	spec WorkerSpec
	StartInput
}

func (in envInput) env() ([]string, error) {
	return workerEnv(in.spec, assignWorkers(in.Round.Assignment, in.spec.LocalWorldSize)[1], in.StartInput)
}

// input describes the second of two nodes.
func input(base ...string) envInput {
	spec := WorkerSpec{Role: "trainer", LocalWorldSize: 2, MaxRestarts: 3}
	round := &rdzv.Round{
		Number: 5, Restarts: 2, Rank: 1, WorldSize: 2, Assignment: rdzv.Assignment{
			GlobalBase: 4, GlobalWorldSize: 6, RoleBase: 1,
			RoleWorldSize: 3,
		},
		MasterAddr: "10.0.0.1", MasterPort: 4321, UseAgentStore: true,
	}
	files := []workerlog.LogFiles{1: {Error: "/logs/1/error.json"}}
	return envInput{spec, StartInput{Round: round, RunID: "job7", Env: base, Files: files}}
}

func TestWorkerEnv(t *testing.T) {
	got, err := input("HOME=/h", "RANK=99", "PET_NNODES=1", "X=a=b").env()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"HOME=/h", "PET_NNODES=1", "X=a=b",
		"LOCAL_RANK=1", "RANK=5", "GROUP_RANK=1", "ROLE_RANK=2", "ROLE_NAME=trainer",
		"LOCAL_WORLD_SIZE=2", "WORLD_SIZE=6", "GROUP_WORLD_SIZE=2", "ROLE_WORLD_SIZE=3",
		"MASTER_ADDR=10.0.0.1", "MASTER_PORT=4321",
		"TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_RUN_ID=job7",
		"TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_ERROR_FILE=/logs/1/error.json",
		"ELASTICRUN_ROUND=5", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestWorkerEnvVariants(t *testing.T) {
	tests := []struct {
		name    string
		base    []string
		change  func(*envInput)
		want    []string // entries that must be there
		wantNot []string // names that must not
		err     string
	}{
		{
			name: "NCCL's setting is inherited", base: []string{"TORCH_NCCL_ASYNC_ERROR_HANDLING=0"},
			want: []string{"TORCH_NCCL_ASYNC_ERROR_HANDLING=0"},
		},
		{
			name: "a worker hosts the store", change: func(in *envInput) { in.Round.UseAgentStore = false },
			want: []string{"TORCHELASTIC_USE_AGENT_STORE=False"},
		},
		{
			name: "no log folder", base: []string{"TORCHELASTIC_ERROR_FILE=/the/launchers/own"},
			change: func(in *envInput) { in.Files[1].Error = "" }, want: []string{"TORCHELASTIC_ERROR_FILE="},
		},
		{name: "flight recorder", change: traced, want: []string{
			"TORCH_FR_DUMP_TEMP_FILE=/logs/trace_",
			"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/logs/trace_",
		}},
		{
			name: "flight recorder of the user's", base: []string{"TORCH_FR_DUMP_TEMP_FILE=x"}, change: traced,
			want: []string{"TORCH_FR_DUMP_TEMP_FILE=x"}, wantNot: []string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE"},
		},
		{
			name: "by its older name", base: []string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE="}, change: traced,
			want: []string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE="}, wantNot: []string{"TORCH_FR_DUMP_TEMP_FILE"},
		},
		{name: "no place for the flight recorder", wantNot: []string{
			"TORCH_FR_DUMP_TEMP_FILE",
			"TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
		}},
		{
			name: "devices are left alone", base: []string{"CUDA_VISIBLE_DEVICES=4,5"},
			want: []string{"CUDA_VISIBLE_DEVICES=4,5", "LOCAL_RANK=1"},
		},
		{name: "no devices", wantNot: []string{"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"}},
		{
			name: "virtual rank, list", base: []string{"CUDA_VISIBLE_DEVICES=4, 5"}, change: virtual,
			want: []string{"CUDA_VISIBLE_DEVICES=5", "LOCAL_RANK=0", "RANK=5"},
		},
		{name: "virtual rank, no list", change: virtual, want: []string{"CUDA_VISIBLE_DEVICES=1", "LOCAL_RANK=0"}},
		{
			name: "virtual rank, short list", base: []string{"CUDA_VISIBLE_DEVICES=4"}, change: virtual,
			err: `CUDA_VISIBLE_DEVICES="4"`,
		},
		{
			name: "virtual rank, HIP before CUDA", base: []string{"HIP_VISIBLE_DEVICES=4,5", "CUDA_VISIBLE_DEVICES=0"},
			change: virtual, want: []string{"HIP_VISIBLE_DEVICES=5", "CUDA_VISIBLE_DEVICES=5", "LOCAL_RANK=0"},
		},
		{
			name: "virtual rank, empty list of HIP", base: []string{"HIP_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=2,3"},
			change: virtual, want: []string{"HIP_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=3"},
		},
		{
			name: "virtual rank, short list of HIP", base: []string{"HIP_VISIBLE_DEVICES=4"}, change: virtual,
			err: `HIP_VISIBLE_DEVICES="4" has no device for local rank 1`,
		},
		{
			name: "virtual rank, ROCR", base: []string{"ROCR_VISIBLE_DEVICES=6,7"}, change: virtual,
			want: []string{"ROCR_VISIBLE_DEVICES=6,7", "CUDA_VISIBLE_DEVICES=1"}, wantNot: []string{"HIP_VISIBLE_DEVICES"},
		},
		{
			name: "virtual rank, Intel", base: []string{"CUDA_VISIBLE_DEVICES="}, change: virtualXPUs,
			want: []string{"ZE_AFFINITY_MASK=3", "LOCAL_RANK=0", "CUDA_VISIBLE_DEVICES="}, wantNot: []string{"ONEAPI_DEVICE_SELECTOR"},
		},
		{
			name: "virtual rank, Intel, selector", base: []string{"ONEAPI_DEVICE_SELECTOR=level_zero:0,3", "ZE_AFFINITY_MASK=0,1,2,3"},
			change: virtualXPUs, want: []string{"ZE_AFFINITY_MASK=3", "ONEAPI_DEVICE_SELECTOR=level_zero:gpu"},
			wantNot: []string{"CUDA_VISIBLE_DEVICES"},
		},
		{
			name: "virtual rank, empty list", base: []string{"CUDA_VISIBLE_DEVICES="}, change: virtual,
			err: "no device for local rank 1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := input(tt.base...)
			if tt.change != nil {
				tt.change(&in)
			}
			got, err := in.env()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q in it", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range tt.want {
				if !slices.Contains(got, kv) {
					t.Errorf("no %s in %v", kv, got)
				}
			}
			for _, name := range tt.wantNot {
				if v, found := lookup(got, name); found {
					t.Errorf("%s=%s is there", name, v)
				}
			}
			seen := map[string]bool{}
			for _, kv := range got {
				name, _, _ := strings.Cut(kv, "=")
				if seen[name] {
					t.Errorf("%s stands twice", name)
				}
				seen[name] = true
			}
		})
	}
}

func traced(in *envInput) { in.Files[1].TracePrefix = "/logs/trace_" }

func virtual(in *envInput) { in.spec.VirtualLocalRank = true }

func virtualXPUs(in *envInput) {
	virtual(in)
	in.spec.XPUs = []string{"0", "3", "5"}
}

func TestOMPDefault(t *testing.T) {
	tests := []struct {
		name    string
		env     []string
		workers int
		want    []string
		applied bool
	}{
		{"one worker", []string{"A=1"}, 1, []string{"A=1"}, false},
		{"two workers", []string{"A=1"}, 2, []string{"A=1", "OMP_NUM_THREADS=1"}, true},
		{"set already", []string{"OMP_NUM_THREADS=8"}, 2, []string{"OMP_NUM_THREADS=8"}, false},
		{"set to nothing counts as set", []string{"OMP_NUM_THREADS="}, 2, []string{"OMP_NUM_THREADS="}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, applied := OMPDefault(tt.env, tt.workers)
			if diff := cmp.Diff(tt.want, got); diff != "" || applied != tt.applied {
				t.Errorf("applied %v (-want +got):\n%s", applied, diff)
			}
		})
	}
}

func TestCommandAndNames(t *testing.T) {
	tests := []struct {
		name, entrypoint string
		args             []string
		command          []string
		base, display    string
	}{
		{
			"script", "/usr/bin/python3",
			[]string{"-u", "train.py", "--r=${local_rank}", "$$x"},
			[]string{"/usr/bin/python3", "-u", "train.py", "--r=4", "$x"},
			"python3", "train.py",
		},
		{"module", "python", []string{"-u", "-m", "pkg.mod"}, []string{"python", "-u", "-m", "pkg.mod"}, "python", "pkg.mod"},
		{
			"program", "./bin/run$local_rank",
			[]string{"a"},
			[]string{"./bin/run$local_rank", "a"},
			"run$local_rank",
			"./bin/run$local_rank",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := WorkerSpec{Entrypoint: tt.entrypoint, Args: tt.args}
			if diff := cmp.Diff(tt.command, s.Command(4)); diff != "" {
				t.Errorf("Command (-want +got):\n%s", diff)
			}
			if s.EntrypointName() != tt.base || s.DisplayName() != tt.display {
				t.Errorf("names %q, %q", s.EntrypointName(), s.DisplayName())
			}
		})
	}
}
