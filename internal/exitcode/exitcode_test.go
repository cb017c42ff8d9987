package exitcode

import "testing"

func TestExitCodeMap(t *testing.T) {
	tests := []struct {
		text string
		code int
		why  Reason
		want int
	}{
		{"", 7, ReasonWorkerFailed, 7},
		{"", 0, "", 0},
		{"7=9", 7, ReasonWorkerFailed, 9},
		{"7=9", 8, ReasonWorkerFailed, 8},
		{"7=0", 7, ReasonWorkerFailed, 0},
		{" 137 = 75 , rendezvous = 99 ", 137, ReasonWorkerKilled, 75},
		{" 137 = 75 , rendezvous = 99 ", 75, ReasonRendezvous, 99},
		{"worker_failed=1,7=9", 7, ReasonWorkerFailed, 9},
		{"worker_failed=1,7=9", 8, ReasonWorkerFailed, 1},
		{"255=255,1=2,2=3", 1, ReasonUsage, 2},
	}
	for _, tt := range tests {
		m, err := ParseMap(tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if got := m.Apply(tt.code, tt.why); got != tt.want {
			t.Errorf("%q: %d (%s) becomes %d, want %d", tt.text, tt.code, tt.why, got, tt.want)
		}
	}
	if got := (Map{}).Apply(5, ReasonSignal); got != 5 {
		t.Errorf("the zero map turns 5 into %d", got)
	}
}

func TestExitCodeMapRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"7":               `"7" is not FROM=TO`,
		"7=9,":            `"" is not FROM=TO`,
		"0=1":             `"0=1": the code before = must be between 1 and 255`,
		"256=1":           `"256=1": the code before = must be between 1 and 255`,
		"7=256":           `"7=256": the code after = must be between 0 and 255`,
		"7=-1":            `"7=-1": the code after = must be between 0 and 255`,
		"7=x":             `"7=x": the code after = must be between 0 and 255`,
		"7=":              `"7=": the code after = must be between 0 and 255`,
		"oom=1":           `"oom=1": the text before = must be a code or one of worker_failed, worker_killed, hang, stop_requested, final_code, same_failure, no_progress, usage, rendezvous, closed, node_lost, preempted, signal, stuck, preflight, finished, output, internal, nothing_started`,
		"7=1,7=2":         `"7=2": 7 is mapped twice`,
		"usage=1,usage=1": `"usage=1": usage is mapped twice`,
	} {
		if _, err := ParseMap(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
