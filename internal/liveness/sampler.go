package liveness

import (
	"context"
	"time"
)

// sampler observes all workers at once for a node. Its slices are in the order of the workers.
type sampler interface {
	observe(ctx context.Context) []observation
	// trees returns the processes of each worker; nil where they are not known.
	trees(ctx context.Context) [][]process
	stacks(ctx context.Context, wishes []stackWish) []stackRead
	// python makes observe take the kernel's values of a worker from its process pid; 0 is the worker itself.
	python(worker, pid int)
}

// readTimeout bounds a read of all workers.
const readTimeout = time.Second

// call runs functions that the kernel may block for long, one at a time. One goroutine at a time may use it.
type call[T any] struct {
	result  chan T
	running bool
	late    bool // the call in progress was started for an earlier sample
}

// start begins a call of f, unless the one before has not come back.
func (c *call[T]) start(f func() T) {
	if c.late = c.running && !c.drop(); c.late {
		return
	}
	if c.result == nil {
		c.result = make(chan T, 1)
	}
	c.running = true
	go func() { c.result <- f() }() // a blocked system call cannot be canceled, so Run does not wait for it
}

// drop forgets the result of a call that came back too late, and reports whether it has come back.
func (c *call[T]) drop() bool {
	select {
	case <-c.result:
		c.running = false
	default:
	}
	return !c.running
}

// wait returns the result of the call that was started. known is false if it does not come back before ctx ends.
func (c *call[T]) wait(ctx context.Context) (result T, known bool) {
	if !c.running || c.late {
		return result, false
	}
	select {
	case result = <-c.result:
		c.running = false
		return result, true
	default:
	}
	select {
	case result = <-c.result:
		c.running = false
		return result, true
	case <-ctx.Done():
		return result, false
	}
}

// keptSamples is for how many samples the state of a pythonReader is kept without a read. It takes tens of KiB, and is
// found again in a millisecond.
const keptSamples = 8

// machine is the sampler of real processes.
type machine struct {
	workers []*workerReader
	warn    func(worker int, problem error) // about a heartbeat file
}

// workerReader reads one worker. The kernel can block each of its four calls without the others.
type workerReader struct {
	worker Worker
	python int // pid; 0: the worker

	proc      procReader
	kernel    call[observation]
	files     fileReader
	disk      call[fileRead]
	lastFiles fileRead
	code      pythonReader
	memory    call[stackRead]
	unused    int // samples since the stacks were read
	tree      call[[]process]
}

func newMachine(workers []Worker, warn func(worker int, problem error)) *machine {
	m := &machine{warn: warn}
	for _, w := range workers {
		m.workers = append(m.workers, &workerReader{
			worker: w, files: fileReader{outputs: w.Files, beat: w.Heartbeat}, code: pythonReader{worker: w.PID},
		})
	}
	return m
}

func (m *machine) python(worker, pid int) { m.workers[worker].python = pid }

func (m *machine) observe(ctx context.Context) []observation {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for _, r := range m.workers {
		if r.unused++; r.unused > keptSamples && !r.memory.running {
			r.code.process = nil
		}
		python := r.python
		r.kernel.start(func() observation { return r.readKernel(python) })
		if len(r.files.outputs) > 0 || r.files.beat != "" {
			r.disk.start(r.files.read)
		}
	}
	found := make([]observation, len(m.workers))
	for i, r := range m.workers {
		if o, known := r.kernel.wait(ctx); known {
			found[i] = o
		}
		if f, known := r.disk.wait(ctx); known {
			if f.problem != nil {
				m.warn(i, f.problem)
			}
			r.lastFiles = f
		}
		r.addCounters(&found[i])
	}
	return found
}

// readKernel reads the Python process of a worker, or the worker itself if the Python process has ended.
func (r *workerReader) readKernel(python int) observation {
	if python != 0 && python != r.worker.PID {
		if o, ok := r.proc.read(python); ok {
			return o
		}
	}
	o, ok := r.proc.read(r.worker.PID)
	if !ok {
		return observation{known: true, ended: true}
	}
	return o
}

// addCounters adds what does not come from the kernel.
func (r *workerReader) addCounters(o *observation) {
	o.output = r.lastFiles.output
	o.heartbeat = r.lastFiles.heartbeat
	if r.worker.Output != nil {
		o.output += r.worker.Output()
	}
	if r.worker.Step != nil {
		o.step.value, o.step.set = r.worker.Step()
	}
}

func (m *machine) trees(ctx context.Context) [][]process {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for _, r := range m.workers {
		r.tree.start(func() []process { return listProcesses(r.worker.PID) })
	}
	trees := make([][]process, len(m.workers))
	for i, r := range m.workers {
		trees[i], _ = r.tree.wait(ctx)
	}
	return trees
}

func (m *machine) stacks(ctx context.Context, wishes []stackWish) []stackRead {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for i, r := range m.workers {
		if wish := wishes[i]; wish != noStacks {
			r.unused = 0
			r.memory.start(func() stackRead { return r.code.read(wish == allStacks) })
		}
	}
	read := make([]stackRead, len(m.workers))
	for i, r := range m.workers {
		if wishes[i] != noStacks {
			read[i], _ = r.memory.wait(ctx)
		}
	}
	return read
}
