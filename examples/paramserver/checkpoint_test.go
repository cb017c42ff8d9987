package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeFile writes a file and creates its folder.
func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeModel saves a checkpoint in a new folder.
func writeModel(t *testing.T, path string, m model) {
	t.Helper()
	writeFile(t, path, "")
	if err := m.save(path); err != nil {
		t.Fatal(err)
	}
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	images := testDigits(t).training.share(0, 50)
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	m, err := loadModel(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newModel(), m); diff != "" {
		t.Errorf("without a checkpoint (-want +got):\n%s", diff)
	}
	for range 3 { // the second and third save replace a file
		m.step([][]float64{images.gradient(m.Weights)}, len(images.images))
		if err := m.save(path); err != nil {
			t.Fatal(err)
		}
		got, err := loadModel(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" { // compares every bit
			t.Errorf("step %d (-want +got):\n%s", m.Steps, diff)
		}
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, want only the checkpoint: %v", files, err)
	}
}

// numbers returns n zeros in JSON.
func numbers(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }

func TestDecodeModelRefuses(t *testing.T) {
	t.Parallel()
	layout := `{"steps":%s,"weights":%s,"velocity":%s}`
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "unexpected end of JSON input"},
		{"a part", fmt.Sprintf(layout, "1", numbers(650), numbers(650))[:100], "unexpected end of JSON input"},
		{"null", "null", "it has 0 steps, 0 weights and 0 velocities, want 650 of both"},
		{"too few", fmt.Sprintf(layout, "1", numbers(649), numbers(650)), "it has 1 steps, 649 weights and 650 velocities, want 650 of both"},
		{"too many", fmt.Sprintf(layout, "1", numbers(650), numbers(651)), "it has 1 steps, 650 weights and 651 velocities, want 650 of both"},
		{"before the first step", fmt.Sprintf(layout, "-1", numbers(650), numbers(650)), "it has -1 steps, 650 weights and 650 velocities, want 650 of both"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeModel([]byte(tc.text))
			if err == nil || err.Error() != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

func FuzzDecodeModel(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(`{"steps":1,"weights":%s,"velocity":%s}`, numbers(650), numbers(650))))
	f.Add([]byte(`{"steps":1e9,"weights":[1e999]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decodeModel(text)
		if err == nil && (m.Steps < 0 || len(m.Weights) != weightCount || len(m.Velocity) != weightCount) {
			t.Fatalf("accepted %d steps, %d weights, %d velocities", m.Steps, len(m.Weights), len(m.Velocity))
		}
	})
}
