package device

import (
	"errors"
	"strings"
	"testing"
)

// to returns the device maps of a worker with one target.
func to(target string, pairs ...Device) map[string]Map {
	m := make(Map)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return map[string]Map{target: m}
}

func TestValidate(t *testing.T) {
	a := func(count int, maps map[string]Map, devices ...Device) Worker {
		return Worker{Name: "a", Count: count, Maps: maps, Devices: devices}
	}
	b := func(count int, devices ...Device) Worker { return Worker{Name: "b", Count: count, Devices: devices} }
	xpu := Device{Type: "xpu"}
	for _, tt := range []struct {
		name    string
		workers []Worker
		dynamic bool
		err     error
		text    string
	}{
		{name: "no workers"},
		{name: "no devices, no maps", workers: []Worker{a(0, nil), b(0)}},

		{name: "declared", workers: []Worker{a(2, nil, CUDA(1), CUDA(0), CPU())}},
		{name: "cpu is declared without GPUs", workers: []Worker{a(0, nil, CPU())}},
		{
			name: "declared twice", workers: []Worker{b(1), a(2, nil, CUDA(1), CUDA(0), CUDA(1))}, err: ErrDuplicateDevices,
			text: `worker "a": devices [cuda:1 cuda:0 cuda:1]: declared more than once: cuda:1; name each device once`,
		},
		{
			name: "cpu declared twice", workers: []Worker{a(1, nil, CPU(), CUDA(0), CPU())}, err: ErrDuplicateDevices,
			text: `worker "a": devices [cpu cuda:0 cpu]: declared more than once: cpu; name each device once`,
		},
		{
			name: "declared twice comes before out of range", workers: []Worker{a(1, nil, CUDA(7), CUDA(7))}, err: ErrDuplicateDevices,
			text: `worker "a": devices [cuda:7 cuda:7]: declared more than once: cuda:7; name each device once`,
		},
		{
			name: "declared out of range", workers: []Worker{a(2, nil, CUDA(3), CUDA(1), CUDA(2))}, err: ErrInvalidDevices,
			text: `worker "a": devices [cuda:3 cuda:1 cuda:2]: declared devices do not exist: cuda:2, cuda:3; ` +
				`worker "a" has the cpu and 2 GPUs, cuda:0 to cuda:1: name only these`,
		},
		{
			name: "declared negative", workers: []Worker{a(1, nil, CUDA(-1))}, err: ErrInvalidDevices,
			text: `worker "a": devices [cuda:-1]: declared devices do not exist: cuda:-1; worker "a" has the cpu and 1 GPU, cuda:0: name only these`,
		},
		{
			name: "declared without GPUs", workers: []Worker{a(0, nil, CUDA(0))}, err: ErrInvalidDevices,
			text: `worker "a": devices [cuda:0]: declared devices do not exist: cuda:0; worker "a" has the cpu and no GPU: name only these`,
		},
		{name: "declared of another type", workers: []Worker{a(1, nil, xpu)}, err: ErrInvalidDevices},
		{name: "a cpu with a number", workers: []Worker{a(1, nil, Device{Type: "cpu", Index: 1})}, err: ErrInvalidDevices},
		{name: "no device at all", workers: []Worker{a(1, nil, Device{})}, err: ErrInvalidDevices},
		{name: "all devices come before any map", workers: []Worker{a(1, to("z")), b(0, CUDA(0))}, err: ErrInvalidDevices},

		{
			name: "unknown target", workers: []Worker{a(2, to("z", CUDA(0), CUDA(0))), b(2)}, err: ErrUnknownTarget,
			text: `worker "a": device map {cuda:0->cuda:0} for "z": no worker of the group has that name; it has "a", "b"`,
		},
		{name: "unknown target of an empty map", workers: []Worker{a(2, to("z")), b(2)}, err: ErrUnknownTarget},
		{name: "unknown target comes before wrong maps", workers: []Worker{a(0, map[string]Map{"b": {CUDA(9): CPU()}, "z": nil}), b(2)}, err: ErrUnknownTarget},
		{name: "target that has not joined", dynamic: true, workers: []Worker{a(2, to("z", CUDA(0), CUDA(99))), b(2)}},
		{
			name: "several sources for a target that has not joined", dynamic: true, err: ErrDuplicateTargets,
			workers: []Worker{a(2, to("z", CUDA(0), CUDA(99), CUDA(1), CUDA(99))), b(2)},
		},
		{name: "source out of range for a target that has not joined", dynamic: true, workers: []Worker{a(2, to("z", CUDA(2), CUDA(0)))}, err: ErrInvalidSources},
		{name: "target that has joined", dynamic: true, workers: []Worker{a(2, to("b", CUDA(0), CUDA(2))), b(2)}, err: ErrInvalidTargets},

		{
			name: "one target of several sources", workers: []Worker{a(3, to("b", CUDA(0), CUDA(1), CUDA(2), CUDA(1), CUDA(1), CPU())), b(2)}, err: ErrDuplicateTargets,
			text: `worker "a": device map {cuda:0->cuda:1, cuda:1->cpu, cuda:2->cuda:1} for "b": target devices have more than one source: cuda:1; ` +
				`give each source a target of its own`,
		},
		{name: "cpu is one target too", workers: []Worker{a(1, to("b", CUDA(0), CPU(), CPU(), CPU())), b(0)}, err: ErrDuplicateTargets},
		{name: "several sources come before wrong ones", workers: []Worker{a(0, to("b", CUDA(0), CUDA(1), CUDA(2), CUDA(1))), b(0)}, err: ErrDuplicateTargets},

		{name: "sources declared", workers: []Worker{a(4, to("b", CUDA(3), CUDA(0)), CUDA(3), CUDA(1)), b(1)}},
		{
			name: "source not declared", workers: []Worker{a(4, to("b", CUDA(3), CUDA(0), CUDA(2), CUDA(1)), CUDA(3), CUDA(1)), b(2)}, err: ErrUnexpectedSources,
			text: `worker "a": device map {cuda:2->cuda:1, cuda:3->cuda:0} for "b": source devices are not declared: cuda:2; ` +
				`worker "a" declares [cuda:3 cuda:1]: map only these, or declare more`,
		},
		{name: "cpu not declared as a source", workers: []Worker{a(1, to("b", CPU(), CPU()), CUDA(0)), b(0)}, err: ErrUnexpectedSources},
		{
			name: "source out of range", workers: []Worker{a(2, to("b", CUDA(2), CUDA(0))), b(1)}, err: ErrInvalidSources,
			text: `worker "a": device map {cuda:2->cuda:0} for "b": source devices do not exist: cuda:2; ` +
				`worker "a" has the cpu and 2 GPUs, cuda:0 to cuda:1: name only these`,
		},
		{name: "source negative", workers: []Worker{a(2, to("b", CUDA(-1), CUDA(0))), b(1)}, err: ErrInvalidSources},
		{name: "source of another type", workers: []Worker{a(2, to("b", xpu, CUDA(0))), b(1)}, err: ErrInvalidSources},
		{name: "source comes before target", workers: []Worker{a(2, to("b", CUDA(2), CUDA(1))), b(1)}, err: ErrInvalidSources},
		{name: "cpu everywhere", workers: []Worker{a(0, to("b", CPU(), CPU())), b(0)}},
		{name: "cpu to GPU and back", workers: []Worker{a(1, to("b", CPU(), CUDA(0), CUDA(0), CPU())), b(1)}},

		{name: "target declared", workers: []Worker{a(1, to("b", CUDA(0), CUDA(3))), b(4, CUDA(3))}},
		{
			name: "target not declared", workers: []Worker{a(2, to("b", CUDA(0), CUDA(3), CUDA(1), CUDA(0))), b(4, CUDA(3), CUDA(2))}, err: ErrUnexpectedTargets,
			text: `worker "a": device map {cuda:0->cuda:3, cuda:1->cuda:0} for "b": target devices are not declared: cuda:0; ` +
				`worker "b" declares [cuda:3 cuda:2]: map only these, or declare more`,
		},
		{name: "cpu not declared as a target", workers: []Worker{a(1, to("b", CUDA(0), CPU())), b(1, CUDA(0))}, err: ErrUnexpectedTargets},
		{
			name: "target out of range", workers: []Worker{a(8, to("b", CUDA(0), CUDA(7), CUDA(1), CUDA(0))), b(1)}, err: ErrInvalidTargets,
			text: `worker "a": device map {cuda:0->cuda:7, cuda:1->cuda:0} for "b": target devices do not exist: cuda:7; ` +
				`worker "b" has the cpu and 1 GPU, cuda:0: name only these`,
		},
		{name: "target negative", workers: []Worker{a(1, to("b", CUDA(0), CUDA(-1))), b(1)}, err: ErrInvalidTargets},
		{name: "target of another type", workers: []Worker{a(1, to("b", CUDA(0), xpu)), b(1)}, err: ErrInvalidTargets},

		{name: "to itself", workers: []Worker{a(2, to("a", CUDA(0), CUDA(1), CUDA(1), CUDA(0)))}},
		{name: "to itself, declared", workers: []Worker{a(2, to("a", CUDA(0), CUDA(1)), CUDA(0))}, err: ErrUnexpectedTargets},
		{name: "to itself, out of range", workers: []Worker{a(2, to("a", CUDA(0), CUDA(2)))}, err: ErrInvalidTargets},
		{
			name: "the first target by name", err: ErrInvalidTargets,
			workers: []Worker{a(1, map[string]Map{"c": {CUDA(0): CUDA(5)}, "b": {CUDA(0): CUDA(6)}}), b(1), {Name: "c"}},
			text:    `worker "a": device map {cuda:0->cuda:6} for "b": target devices do not exist: cuda:6; worker "b" has the cpu and 1 GPU, cuda:0: name only these`,
		},
		{name: "the first worker as given", workers: []Worker{{Name: "b", Maps: to("z")}, a(0, to("b", CUDA(0), CPU()))}, err: ErrUnknownTarget},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Validate(tt.workers, !tt.dynamic)
			if !errors.Is(err, tt.err) || tt.text != "" && text(err) != tt.text {
				t.Errorf("%v\nwant %v %s", err, tt.err, tt.text)
			}
			if strings.Contains(text(err), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

// The error stays readable in a large group.
func TestManyWorkers(t *testing.T) {
	workers := []Worker{{Name: "a", Maps: to("z")}}
	for range 255 {
		workers = append(workers, Worker{Name: strings.Repeat("b", len(workers))})
	}
	want := `worker "a": device map {} for "z": no worker of the group has that name; ` +
		`it has "a", "b", "bb", "bbb", "bbbb", "bbbbb", "bbbbbb", "bbbbbbb", and 248 more`
	if got := text(Validate(workers, true)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// The fields contain what the text says.
func TestMapError(t *testing.T) {
	workers := []Worker{{Name: "a", Count: 1, Maps: to("b", CUDA(0), CUDA(4))}, {Name: "b", Count: 3}}
	var e *MapError
	if !errors.As(Validate(workers, true), &e) {
		t.Fatal("no MapError")
	}
	if e.Worker != "a" || e.Target != "b" || e.Count != 3 || len(e.Wrong) != 1 || e.Wrong[0] != CUDA(4) || e.Map[CUDA(0)] != CUDA(4) {
		t.Errorf("%+v", e)
	}
}
