package manpage

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func testPages(t *testing.T) map[string]string {
	t.Helper()
	codes, err := os.ReadFile("../../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := Pages(Options{Version: "v1.2.3", Date: time.Unix(0, 0), ExitCodes: string(codes)})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// rendered returns a page as man shows it, with one line for each paragraph.
func rendered(t *testing.T, page string) string {
	t.Helper()
	groff, err := exec.LookPath("groff")
	if err != nil {
		testenv.Missing(t, "needs groff (apt-get install groff-base): %v", err)
	}
	cmd := exec.Command(groff, "-ww", "-man", "-Tutf8", "-P-cbou", "-rLL=1000n")
	var warnings bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(page), &warnings
	out, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("groff: %v\n%s", err, &warnings)
	}
	return string(out)
}

// The pages have no roff warnings and show the whole help of each flag.
func TestPages(t *testing.T) {
	pages := testPages(t)
	want := map[string][]config.Flag{"elasticrun.1": config.Flags()}
	for _, s := range config.Subcommands() {
		want["elasticrun-"+s.Name+".1"] = s.Flags()
	}
	for name, flags := range want {
		text := rendered(t, pages[name])
		for _, f := range flags {
			if !strings.Contains(text, "--"+f.Name) || !strings.Contains(text, f.Help) {
				t.Errorf("%s does not show --%s and all of its help", name, f.Name)
			}
		}
	}
	launch := rendered(t, pages["elasticrun.1"])
	for _, part := range []string{"PET_NNODES", "PYTHON_EXEC", "75 (reason rendezvous)", "71 (reason stuck)", "elasticrun-store(1),", "1970-01-01", "elasticrun v1.2.3"} {
		if !strings.Contains(launch, part) {
			t.Errorf("elasticrun(1) does not show %q", part)
		}
	}
}

// A manual page cannot link to the pages of docs, so the text of a link stands alone.
func TestNoMarkdownLinks(t *testing.T) {
	for name, page := range testPages(t) {
		for line := range strings.Lines(page) {
			if strings.Contains(line, "](") || strings.Contains(line, `.md`) && strings.Contains(line, "[") {
				t.Errorf("%s has a link of Markdown: %s", name, line)
			}
		}
	}
}

func TestWithoutLinks(t *testing.T) {
	for text, want := range map[string]string{
		"see [the report](report.md#json), and [logs](logs.md)": "see the report, and logs",
		"`[1]` and [2], f(x), [a] (b), [open](x":                "`[1]` and [2], f(x), [a] (b), [open](x",
		"elasticrun store [flags]":                              "elasticrun store [flags]",
	} {
		if got := withoutLinks(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// man has no warnings either, at the width of a terminal.
func TestMan(t *testing.T) {
	man, err := exec.LookPath("man")
	if err != nil {
		testenv.Missing(t, "needs man (apt-get install man-db): %v", err)
	}
	for name, page := range testPages(t) {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(man, "--warnings", "-l", file)
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "MANROFFOPT=", "LC_ALL=C.UTF-8", "PAGER=cat")
		var warnings bytes.Buffer
		cmd.Stderr = &warnings
		if err := cmd.Run(); err != nil || warnings.Len() > 0 {
			t.Errorf("man -l %s: %v\n%s", name, err, &warnings)
		}
	}
}

func TestExitCodes(t *testing.T) {
	const text = "# Codes\n\n| code | reason | what |\n|---|---|---|\n| 0 | | Fine. |\n| 128+n | `signal` | Told `so`. | no |\n\nMore.\n\n## other\n\n| code | reason | what |\n|---|---|---|\n| 2 | `usage` | Bad. |\n"
	got, err := exitCodes(text, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]exitCode{{"0", "", "Fine."}, {"128+n", "signal", "Told `so`."}}, got, cmp.AllowUnexported(exitCode{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err = exitCodes(text, "other")
	if err != nil || len(got) != 1 || got[0].code != "2" {
		t.Errorf("other: %v, %v", got, err)
	}
	for _, tt := range []struct{ text, heading, want string }{
		{text, "nowhere", `no heading "nowhere"`},
		{"nothing", "", `no table below ""`},
		{"\n|---|\n| 2 |\n", "", "has 1 cells"},
	} {
		if _, err := exitCodes(tt.text, tt.heading); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q below %q: %v, want %s", tt.text, tt.heading, err, tt.want)
		}
	}
}

// No text becomes a command or an escape of roff.
func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		".TH": `\&.TH`, "'x": `\(aqx`, `a\b`: `a\eb`, "--x": `\-\-x`, "": "",
	} {
		if got := escape(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
