package preview

import (
	"strings"
	"testing"
	"unicode"
)

// TestTextIsPrintable checks that no value in a plan can control the terminal, turn the direction of text or start a
// line.
func TestTextIsPrintable(t *testing.T) {
	t.Parallel()
	const nasty = "\x1b[2Jx\x9b\u202e\u2066\nsecond\r\x07\u200f"
	value := nasty
	p := Plan{
		Host: nasty, ConfigFile: nasty, StartedBy: []string{nasty}, Warnings: []string{nasty}, RanksNote: nasty,
		Settings: []Setting{{Name: nasty, Value: nasty, Source: nasty}},
		Job:      Job{RunID: nasty, Role: nasty},
		Rendezvous: Rendezvous{
			Backend: nasty, Endpoint: nasty, HostsWhy: nasty, Admission: nasty, WorkerStore: nasty,
			Endpoints: []Endpoint{{Host: nasty, Problem: nasty, Addresses: []Address{{Detail: nasty}}}},
		},
		Interpreter: &Interpreter{Path: nasty, Source: nasty},
		Logs:        Logs{Folder: nasty},
		Workers:     []Worker{{Command: []string{nasty}, Env: []Variable{{Name: nasty, Value: &value}}}},
	}
	text := p.Text()
	for line := range strings.SplitSeq(text, "\n") {
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.HasPrefix(line, "second") {
			t.Errorf("not printable: %q", line)
		}
	}
}
