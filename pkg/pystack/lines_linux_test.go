package pystack

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"testing"
)

// TestLinesOfPython compares with the lines that Python itself finds for the code of some programs.
func TestLinesOfPython(t *testing.T) {
	formats := map[string]lineFormat{"lnotab": lnotab, "ranges": lineRanges, "locations": locations}
	for _, interpreter := range interpreters() {
		t.Run(interpreter.name, func(t *testing.T) {
			python := interpreter.find(t)
			cmd := exec.CommandContext(t.Context(), python, "testdata/lines.py",
				"testdata/lines.py", "testdata/hang.py", "testdata/churn.py", "testdata/syntax.py")
			cmd.Stderr = t.Output()
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			checked := 0
			for line := range bytes.Lines(out) {
				var code struct {
					Form, Table string
					First       int
					Lines       []int
				}
				if err := json.Unmarshal(line, &code); err != nil {
					t.Fatal(err)
				}
				table, err := hex.DecodeString(code.Table)
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range code.Lines {
					offset := i * instructionSize
					if got := lineAt(formats[code.Form], table, code.First, offset); got != want {
						t.Fatalf("%s from line %d: line at %d is %d, want %d", code.Form, code.First, offset, got, want)
					}
					checked++
				}
			}
			if checked < 1000 {
				t.Errorf("checked %d instructions", checked)
			}
		})
	}
}
