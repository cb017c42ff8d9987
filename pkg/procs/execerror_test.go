package procs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// elfProgram returns the head of a program for a machine, with a loader if one is given.
func elfProgram(machine uint16, loader string) string {
	b := make([]byte, 64+56, 200)
	copy(b, "\x7fELF\x02\x01\x01")
	order := binary.LittleEndian
	order.PutUint16(b[16:], 2) // ET_EXEC
	order.PutUint16(b[18:], machine)
	order.PutUint32(b[20:], 1)
	order.PutUint64(b[32:], 64)
	order.PutUint16(b[52:], 64)
	order.PutUint16(b[54:], 56)
	order.PutUint16(b[56:], 1)
	if loader != "" {
		header := b[64:]
		order.PutUint32(header, 3) // PT_INTERP
		order.PutUint64(header[8:], uint64(len(b)))
		order.PutUint64(header[32:], uint64(len(loader)+1))
		order.PutUint64(header[40:], uint64(len(loader)+1))
		b = append(b, loader+"\x00"...)
	}
	return string(b)
}

// numberOf returns the number of a machine in the head of an ELF file.
func numberOf(t *testing.T, name string) uint16 {
	t.Helper()
	for number, known := range elfMachines {
		if known == name {
			return number
		}
	}
	t.Skip("this machine's number is unknown: " + name)
	return 0
}

// TestExecError checks what is said about real errors of the kernel. @ stands for the folder of the files.
func TestExecError(t *testing.T) {
	foreign, own := numberOf(t, "riscv64"), numberOf(t, machine())
	for _, tt := range []struct {
		name, argv0, content string
		mode                 os.FileMode
		want                 string
	}{
		{name: "on PATH nowhere", argv0: "nosuch", want: "nosuch is in no folder of PATH (@/bin:@/gone)"},
		{
			name: "in the working directory", argv0: "tool", content: "#!/bin/sh\n", mode: 0o755,
			want: "tool is in no folder of PATH; write ./tool to run the file in the working directory",
		},
		{
			name: "in the working directory without permission", argv0: "tool", content: "#!/bin/sh\n", mode: 0o644,
			want: "tool is in no folder of PATH, and ./tool has no execute permission: run chmod +x ./tool",
		},
		{
			name: "on PATH without permission", argv0: "plain", content: "#!/bin/sh\n", mode: 0o644,
			want: "@/bin/plain has no execute permission: run chmod +x @/bin/plain",
		},
		{name: "no file", argv0: "./nosuch", want: "./nosuch does not exist in the working directory @"},
		{name: "no file at an absolute path", argv0: "@/nosuch", want: "@/nosuch does not exist"},
		{name: "a dangling link", argv0: "./link", want: "./link is a link to @/gone/tool, which does not exist"},
		{name: "a folder", argv0: "@/bin", want: "@/bin is a folder, not a program"},
		{
			name: "no permission", argv0: "./tool", content: "#!/bin/sh\n", mode: 0o644,
			want: "./tool has no execute permission: run chmod +x ./tool",
		},
		{
			name: "no permission and no interpreter", argv0: "./tool", content: "print(1)\n", mode: 0o644,
			want: "./tool has no execute permission, and no first line such as #!/bin/sh",
		},
		{
			name: "a name with a blank", argv0: "@/my tool", content: "#!/bin/sh\n", mode: 0o644,
			want: "@/my tool has no execute permission: run chmod +x '@/my tool'",
		},
		{
			name: "no interpreter", argv0: "./tool", content: "#! /no/where -x\n", mode: 0o755,
			want: "./tool needs the interpreter /no/where of its first line, which does not exist",
		},
		{
			name: "an interpreter without permission", argv0: "./tool", content: "#!@/bin/plain\n", mode: 0o755,
			want: "./tool needs the interpreter @/bin/plain of its first line, which user 0 may not execute",
		},
		{
			name: "CRLF", argv0: "./tool", content: "#!/bin/sh\r\necho\r\n", mode: 0o755,
			want: `the lines of ./tool end in CRLF, so its interpreter would be "/bin/sh\r": run sed -i 's/\r$//' ./tool`,
		},
		{
			name: "a byte order mark", argv0: "./tool", content: "\xef\xbb\xbf#!/bin/sh\n", mode: 0o755,
			want: `./tool begins with a byte order mark, which hides its first line: run sed -i '1s/^\xEF\xBB\xBF//' ./tool`,
		},
		{name: "an empty file", argv0: "./tool", mode: 0o755, want: "./tool is empty"},
		{
			name: "text", argv0: "./tool", content: "echo hello\n", mode: 0o755,
			want: "./tool is neither a program nor a script: a script's first line is such as #!/bin/sh",
		},
		{
			name: "another machine", argv0: "./tool", content: elfProgram(foreign, ""), mode: 0o755,
			want: "./tool is a program for riscv64, and this machine is " + machine(),
		},
		{
			name: "no loader", argv0: "./tool", content: elfProgram(own, "/lib/ld-nosuch.so.1"), mode: 0o755,
			want: "./tool needs the loader /lib/ld-nosuch.so.1, which does not exist here: it was built for another system",
		},
		{name: "unknown", argv0: "./tool", content: "\x00\x01", mode: 0o755, want: "execute ./tool: exec format error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			at := func(s string) string { return strings.ReplaceAll(s, "@", dir) }
			t.Setenv("PATH", at("@/bin:@/gone:@/bin"))
			if err := errors.Join(os.Mkdir("bin", 0o755), os.WriteFile("bin/plain", []byte("#!/bin/sh\n"), 0o644),
				os.Symlink(at("@/gone/tool"), "link")); err != nil {
				t.Fatal(err)
			}
			argv0 := at(tt.argv0)
			if tt.mode != 0 && tt.argv0 != "plain" {
				if err := os.WriteFile(filepath.Base(argv0), []byte(strings.ReplaceAll(tt.content, "@/", dir+"/")), tt.mode); err != nil {
					t.Fatal(err)
				}
			}
			path, err := exec.LookPath(argv0)
			if err == nil {
				_, err = syscall.ForkExec(path, []string{argv0}, nil)
			}
			if err == nil {
				t.Fatal("executed")
			}
			got := explainExec(argv0, path, err)
			want := strings.Replace(at(tt.want), "user 0", fmt.Sprint("user ", os.Geteuid()), 1)
			if got.Error() != want {
				t.Errorf("%q\nwant %q", got, want)
			}
			if e := startExit(0, got, time.Now()); !e.Unexecutable() {
				t.Error("the error is no longer known as a lasting one")
			}
		})
	}
}
