package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseErrorFile(t *testing.T) {
	tests := []struct {
		name, text string
		want       errorFile
		err        string
	}{
		{
			name: "what @record writes",
			text: `{"message":{"message":"ValueError: no","extraInfo":{"py_callstack":"Traceback\nValueError: no\n","timestamp":"1700000000"}}}`,
			want: errorFile{
				Message: "ValueError: no", CallStack: "Traceback\nValueError: no\n",
				Timestamp: time.Unix(1700000000, 0),
			},
		},
		{
			name: "message is a text",
			text: `{"message":"boom","timestamp":1700000001,"more":[1]}`,
			want: errorFile{Message: "boom", Timestamp: time.Unix(1700000001, 0)},
		},
		{name: "no timestamp", text: `{"message":{"message":"m"}}`, want: errorFile{Message: "m"}},
		{name: "a timestamp that is none", text: `{"message":"m","timestamp":"soon"}`, want: errorFile{Message: "m"}},
		{
			name: "seconds with a fraction", text: `{"message":"m","timestamp":1700000001.5}`,
			want: errorFile{Message: "m", Timestamp: time.Unix(1700000001, 5e8)},
		},
		{name: "a timestamp beyond all time", text: `{"message":"m","timestamp":1e300}`, want: errorFile{Message: "m"}},
		{name: "bytes that are no text", text: "{\"message\":\"a\xffb\"}", want: errorFile{Message: "a\uFFFDb"}},
		{name: "half a surrogate", text: `{"message":"a\udcffb"}`, want: errorFile{Message: "a\uFFFDb"}},
		{name: "nested too deep", text: `{"message":` + strings.Repeat("[", 200_000), err: "parse error file"},
		{
			name: "nested", text: `{"message":"m","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
			want: errorFile{Message: "m"},
		},
		{name: "two of them", text: `{"message":"m"}{"message":"n"}`, err: "parse error file"},
		{name: "not JSON", text: "Traceback", err: "parse error file"},
		{name: "cut short", text: `{"message":{"message":"ValueErr`, err: "parse error file"},
		{name: "no message", text: `{}`, err: "message is neither a text nor an object with one"},
		{name: "message is a list", text: `{"message":[1]}`, err: "message is neither a text nor an object with one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "error.json")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readErrorFile(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q in it", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Raw, tt.want.Written = tt.text, got.Written
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadErrorFileOdd(t *testing.T) {
	dir := t.TempDir()
	empty, huge := filepath.Join(dir, "empty"), filepath.Join(dir, "huge")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, make([]byte, maxErrorFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", filepath.Join(dir, "missing")} {
		if f, err := readErrorFile(path); f != nil || err != nil {
			t.Errorf("%q: %v, %v", path, f, err)
		}
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// Even root cannot read a path below a file.
	for _, path := range []string{empty, huge, dir, fifo, filepath.Join(empty, "error.json")} {
		if f, err := readErrorFile(path); f != nil || err == nil {
			t.Errorf("%q: %v, %v", path, f, err)
		}
	}
}
