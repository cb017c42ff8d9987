package release

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// githubScripts returns the shell scripts of a workflow's only job, in their order.
func githubScripts(t *testing.T, text string) []string {
	t.Helper()
	var workflow struct {
		On   map[string]any
		Jobs map[string]struct {
			RunsOn  string `yaml:"runs-on"`
			Timeout int    `yaml:"timeout-minutes"`
			Env     map[string]string
			Steps   []struct {
				Name, Uses, Run string
				With            map[string]string
			}
		}
		Name string
	}
	decode(t, text, &workflow)
	var scripts []string
	for name, job := range workflow.Jobs {
		if job.RunsOn == "" || job.Timeout < 1 || job.Env["ELASTICRUN_WHEEL"] == "" || len(workflow.Jobs) != 1 {
			t.Errorf("job %s: %+v", name, job)
		}
		for _, step := range job.Steps {
			switch {
			case (step.Uses == "") == (step.Run == ""):
				t.Errorf("a step uses something or runs something: %+v", step)
			case step.Run != "":
				scripts = append(scripts, step.Run)
			}
		}
	}
	return scripts
}

// gitlabScripts returns the lines of a job as one script.
func gitlabScripts(t *testing.T, text string) []string {
	t.Helper()
	var pipeline map[string]struct {
		Image, Timeout string
		Script         []string
	}
	decode(t, text, &pipeline)
	if len(pipeline) != 1 || pipeline["smoke"].Image == "" {
		t.Fatalf("want the one job smoke: %+v", pipeline)
	}
	return []string{strings.Join(pipeline["smoke"].Script, "\n")}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// testExamples runs the CI examples unchanged, except for the port, which other tests may use.
func testExamples(e *environment, dist string) {
	t := e.t
	t.Helper()
	e.env = append(
		e.env,
		"PATH="+filepath.Join(e.venv, "bin")+":/usr/bin:/bin",
		"ELASTICRUN_WHEEL="+onlyFile(t, dist, "*.whl"),
		"PET_RDZV_CONF=join_timeout=60",
	)
	for name, scripts := range map[string]func(*testing.T, string) []string{"github-actions.yml": githubScripts, "gitlab-ci.yml": gitlabScripts} {
		t.Run(name, func(t *testing.T) {
			e := e.of(t)
			all := scripts(t, read(t, "../../examples/ci", name))
			e.script(worker)
			out := ""
			for _, script := range all {
				out += e.shell(script)
			}
			for _, line := range []string{"rank 0 of 2 by " + e.venv + "\n", "rank 1 of 2 by " + e.venv + "\n"} {
				if strings.Count(out, line) != 1 {
					t.Errorf("not one line %q in\n%s", line, out)
				}
			}
			// A failed training must fail the job.
			e.script("raise SystemExit(3)")
			cmd := e.command(all[len(all)-1])
			if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 3 {
				t.Errorf("the training ends with 3, and the job with %v:\n%s", cmd.ProcessState, out)
			}
		})
	}
}

// shell runs a script like the CI services and returns its output. The script must succeed.
func (e *environment) shell(script string) string {
	e.t.Helper()
	out, err := e.command(script).CombinedOutput()
	if err != nil {
		e.t.Fatalf("%v:\n%s\n%s", err, script, out)
	}
	return string(out)
}

func (e *environment) command(script string) *exec.Cmd {
	e.t.Helper()
	const endpoint = "--rdzv-endpoint=localhost"
	bash, err := exec.LookPath("bash")
	if err != nil {
		testenv.Missing(e.t, "needs bash: %v", err)
	}
	cmd := exec.CommandContext(
		e.t.Context(),
		bash,
		"-e",
		"-o",
		"pipefail",
		"-c",
		strings.ReplaceAll(script, endpoint+" ", fmt.Sprint(endpoint, ":", testenv.FreePort(e.t), " ")),
	)
	cmd.Dir, cmd.Env = e.work, e.env
	return cmd
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
