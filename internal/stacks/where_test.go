package stacks

import (
	"fmt"
	"testing"
)

func TestWhere(t *testing.T) {
	inFiles := func(files ...string) Worker {
		var frames []Frame
		for i, file := range files {
			frames = append(frames, Frame{file, i + 1, fmt.Sprintf("call%d", i+1)})
		}
		return Worker{State: "sleeping", Wait: "futex_wait", Threads: []Thread{{Frames: frames}}}
	}
	for _, tt := range []struct {
		name   string
		worker Worker
		want   string
	}{
		{"the innermost call", inFiles("/srv/save.py", "/srv/train.py"), "in call1, save.py:1"},
		{
			"libraries are skipped",
			inFiles("/usr/lib/python3.11/threading.py", "/v/lib/python3.12/site-packages/torch/x.py", "/srv/train.py"),
			"in call3, train.py:3",
		},
		{
			"so are other places of libraries",
			inFiles("<frozen runpy>", "/usr/lib64/python3.9/os.py", "/usr/lib/python3/dist-packages/x.py", "<string>"),
			"in call4, <string>:4",
		},
		{"a folder named python", inFiles("/home/ann/python3/train.py"), "in call1, train.py:1"},
		{"only libraries", inFiles("/usr/lib/python3.11/threading.py", "<frozen x>"), "in call1, threading.py:1"},
		{"a name with control characters", inFiles("/srv/a\x1b[2J.py"), `in call1, a\x1b[2J.py:1`},
		{"no Python", Worker{State: "sleeping", Wait: "do_wait", Problem: "it is not Python"}, "sleeping in do_wait"},
		{"the kernel says no more", Worker{State: "running"}, "running"},
		{"nothing is known", Worker{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.worker.Where(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
