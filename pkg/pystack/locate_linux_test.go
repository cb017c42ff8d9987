package pystack

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// wantModule checks that a process can be read, and that its main thread runs a module's own code.
func wantModule(t *testing.T, pid int) {
	t.Helper()
	main, err := mustOpen(t, pid).MainThread()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"<module>"}; !slices.Equal(functions(main), want) {
		t.Errorf("functions %q, want %q", functions(main), want)
	}
}

// TestDeletedLibrary reads a program whose libpython was replaced by an upgrade, so that only memory has its symbols.
func TestDeletedLibrary(t *testing.T) {
	libraries, err := filepath.Glob("/usr/lib/*/libpython3.*.so.1.0")
	if err != nil || len(libraries) == 0 {
		testenv.Missing(t, "needs libpython (apt-get install python3-dev): %v", err)
	}
	dir := t.TempDir()
	library := filepath.Join(dir, filepath.Base(libraries[0]))
	data, err := os.ReadFile(libraries[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library, data, 0o600); err != nil {
		t.Fatal(err)
	}
	run := start(t, nil, link(t, "testdata/embed.c", "trainer", library, "-Wl,-rpath,"+dir), "-c", waiting)
	run.line()
	if err := os.Remove(library); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library, []byte("an upgrade"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantModule(t, run.pid)
}

// TestStatic reads programs with all of Python in them and no dynamic symbols: with symbols in the file, and without
// any.
func TestStatic(t *testing.T) {
	archives, err := filepath.Glob("/usr/lib/python3.11/config-3.11-*/libpython3.11-pic.a")
	if err != nil || len(archives) == 0 {
		testenv.Missing(t, "needs libpython3.11-pic.a (apt-get install python3-dev): %v", err)
	}
	for _, tc := range []struct {
		name  string
		flags []string
	}{
		{name: "fixed address", flags: []string{"-no-pie"}},
		{name: "any address", flags: []string{"-pie"}},
		{name: "stripped", flags: []string{"-pie", "-s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// A stripped program says its version only with its name.
			args := append(slices.Clone(tc.flags), archives[0], "-lm", "-lz", "-lexpat")
			program := link(t, "testdata/embed.c", "python3.11-trainer", args...)
			run := start(t, nil, program, "-c", waiting)
			run.line()
			wantModule(t, run.pid)
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
			wantModule(t, run.pid)
		})
	}
}

func TestParseMaps(t *testing.T) {
	got, err := parseMaps(strings.NewReader(`00400000-0041f000 r--p 00000000 fe:00 1234                               /usr/bin/python3.11
0041f000-006d2000 r-xp 0001f000 fe:00 1234                               /usr/bin/python3.11
01a3b000-01b8e000 rw-p 00000000 00:00 0                                  [heap]
7f0000000000-7f0000001000 r--p 00000000 fe:00 77                         /opt/my libs/libpython3.9.so.1.0 (deleted)
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
bad line
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []mapping{
		{start: 0x400000, end: 0x41f000, inode: 1234, path: "/usr/bin/python3.11"},
		{start: 0x7f0000000000, end: 0x7f0000001000, inode: 77, path: "/opt/my libs/libpython3.9.so.1.0"},
	}
	if !slices.Equal(want, got) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	likelyFirst(got, "/usr/bin/python3.11")
	if got[0] != want[1] {
		t.Errorf("the first is %+v, want the library", got[0])
	}
}

func TestVersionOfName(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/bin/python3.9":                "3.9",
		"/usr/lib/libpython3.10.so.1.0":     "3.10",
		"/opt/python3.8/bin/python3.13-dbg": "3.13",
		"/usr/bin/python3":                  "",
		"/usr/bin/python":                   "",
		"/usr/bin/python3.":                 "",
		"/usr/lib/python3.9/libc.so":        "",
		"/usr/lib/libboost_python311.so.1":  "",
	} {
		got := ""
		if v, ok := versionOfName(name); ok {
			got = v.String()
		}
		if got != want {
			t.Errorf("versionOfName(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestUnsupported opens programs with symbols of Pythons that the package does not read.
func TestUnsupported(t *testing.T) {
	for _, tc := range []struct {
		name, program string
		flags         []string
		want          string
	}{
		{name: "2.7", program: "python2.7", want: "python 2.7 is older than 3.9"},
		{name: "3.8", program: "python3.8", flags: []string{"-DRUNTIME="}, want: "python 3.8 is older than 3.9"},
		{name: "before 3.7, renamed", program: "train", want: "the python of train is older than 3.9"},
		{name: "no version", program: "train", flags: []string{"-DRUNTIME="}, want: "the version of the python of train is unknown"},
		{name: "3.16", program: "train", flags: []string{"-DRUNTIME=", "-DVERSION=0x031000f0"}, want: "python 3.16 is newer than 3.15"},
		{
			name: "3.16, only described", program: "train",
			flags: []string{`-DRUNTIME={"xdebugpy"},0x031000f0`}, want: "python 3.16 is newer than 3.15",
		},
		{
			name: "free-threaded", program: "train",
			flags: []string{`-DRUNTIME={"xdebugpy"},0x030e00f0,1`}, want: "free-threaded build of 3.14",
		},
		{
			name: "symbols only in the file", program: "train",
			flags: []string{`-DRUNTIME={"xdebugpy"},0x030d00f0,1`, "-Wl,--hash-style=sysv"}, want: "free-threaded build of 3.13",
		},
		{
			name: "no description", program: "train",
			flags: []string{"-DRUNTIME=", "-DVERSION=0x030e00f0"}, want: "python 3.14.0 does not describe its layout",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := start(t, nil, link(t, "testdata/fake.c", tc.program, append(tc.flags, "-rdynamic")...))
			run.line()
			_, err := Open(run.pid)
			wantReason(t, err, tc.want)
		})
	}
}

// TestNoInterpreter opens a program that has Python and has not started it.
func TestNoInterpreter(t *testing.T) {
	run := start(t, nil, link(t, "testdata/fake.c", "train", "-DRUNTIME=", "-DVERSION=0x030c00f0", "-rdynamic"))
	run.line()
	if _, err := Open(run.pid); !errors.Is(err, ErrNoInterpreter) {
		t.Errorf("got %v, want %v", err, ErrNoInterpreter)
	}
}
