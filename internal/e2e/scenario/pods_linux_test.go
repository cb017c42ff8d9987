package scenario

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// Names of the cluster.
const (
	podNames    = "train"
	podService  = "train.ml.svc.cluster.local"
	podEndpoint = podNames + "-0." + podService
	podCount    = 3
)

// podSpec is how a container of examples/kubernetes starts.
type podSpec struct {
	Command []string
	Env     []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
}

// indexedJob reads the container of examples/kubernetes/indexed-job.yaml.
func indexedJob(t *testing.T) podSpec {
	t.Helper()
	data, err := os.ReadFile("../../../examples/kubernetes/indexed-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Template struct {
				Spec struct {
					Subdomain  string
					Containers []podSpec
				}
			}
		}
	}
	for in := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var o object
		if err := in.Decode(&o); err != nil {
			t.Fatalf("no job is found: %v", err)
		}
		if pod := o.Spec.Template.Spec; o.Kind == "Job" {
			if service, _, _ := strings.Cut(podService, "."); o.Metadata.Name != podNames || pod.Subdomain != service ||
				len(pod.Containers) != 1 {
				t.Fatalf("the job is not as these tests have it: %+v", o)
			}
			return pod.Containers[0]
		}
	}
}

// environment returns the container's environment, with the fields of the pod that it refers to.
func (p podSpec) environment(t *testing.T) map[string]string {
	t.Helper()
	fields := map[string]string{"metadata.labels['batch.kubernetes.io/job-name']": podNames}
	env := map[string]string{}
	for _, e := range p.Env {
		env[e.Name] = cmp.Or(e.Value, fields[e.ValueFrom.FieldRef.FieldPath])
		if env[e.Name] == "" {
			t.Fatalf("%s has no value, or that of something that no pod here has: %+v", e.Name, e.ValueFrom)
		}
	}
	return env
}

// pods is a job whose agents run in pods: simulated hosts named train-INDEX, which resolve names only by the name
// server.
type pods struct {
	*job

	names   *names
	command []string
	env     map[string]string // environment of each pod
	indexed bool              // an Indexed Job, else a StatefulSet
	created int               // number of pods so far; each has an address of its own
}

// newPods makes the pods of the example's Indexed Job: three in place of four, with one worker each. None runs yet.
func newPods(t *testing.T) *pods {
	t.Helper()
	spec := indexedJob(t)
	p := &pods{command: spec.Command, env: spec.environment(t), indexed: true}
	if p.env["PET_NNODES"] == "" || p.env["PET_NPROC_PER_NODE"] == "" {
		t.Fatalf("the example does not say how many nodes and workers there are: %v", p.env)
	}
	p.env["PET_NNODES"], p.env["PET_NPROC_PER_NODE"] = fmt.Sprint(podCount), "1"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the secret of these pods\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.env["ELASTICRUN_RDZV_SECRET_FILE"] = secret // in place of a Secret's volume
	p.job = newJob(t, podCount+1)
	p.names = serveNames(t, p.lab.Hosts[podCount])
	return p
}

// create makes the pod of an index on an idle host and starts its container. The pod has a new address, and no name
// yet.
func (p *pods) create(index int) *program {
	p.t.Helper()
	h := p.lab.Hosts[index]
	name := fmt.Sprintf("%s-%d", podNames, index)
	p.created++
	addr := fmt.Sprintf("10.75.0.%d", 100+p.created)
	h.Reinstall(name, addr, map[string]string{
		"hosts": fmt.Sprintf(
			"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n%s\t%s.%s\t%[2]s\n",
			addr,
			name,
			podService,
		),
		"resolv.conf": "search ml.svc.cluster.local svc.cluster.local cluster.local\nnameserver " + p.names.host.Addr + "\noptions ndots:5\n",
		"machine-id":  strings.Repeat("0", 32) + "\n", // as in the image
	})
	// The image has elasticrun in its PATH, and the command's train.py in its working folder.
	folder := p.t.TempDir()
	if err := os.Symlink(p.worker[0], filepath.Join(folder, "train.py")); err != nil {
		p.t.Fatal(err)
	}
	args := slices.Concat(p.command[1:], p.worker[1:])
	cmd := h.Command(p.t.Context(), p.command[0], args...)
	cmd.Dir = folder
	env := map[string]string{
		"PATH": filepath.Dir(testenv.Binary(p.t)) + ":" + os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "LANG": "C.UTF-8",
		"PYTHON_EXEC": p.trainer.python(p.t), "OMP_NUM_THREADS": "1",
		"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443",
	}
	if p.indexed {
		env["JOB_COMPLETION_INDEX"] = fmt.Sprint(index)
	}
	maps.Copy(env, p.env)
	for variable, value := range env {
		cmd.Env = append(cmd.Env, variable+"="+value)
	}
	a := run(p.t, h, fmt.Sprintf("%s at %s", name, addr), cmd)
	p.agents = append(p.agents, a)
	return a
}

// createAll makes all pods.
func (p *pods) createAll() {
	p.t.Helper()
	for i := range podCount {
		p.create(i)
	}
}

// publish publishes the names of all pods and of their service, with their present addresses.
func (p *pods) publish() {
	var all []string
	for _, h := range p.lab.Hosts[:podCount] {
		p.names.publish(h.Name+"."+podService, h.Addr)
		all = append(all, h.Addr)
	}
	p.names.publish(podService, all...)
}

// lose kills all processes of a pod.
func (p *pods) lose(a *program) {
	p.t.Helper()
	a.host.Kill()
	a.code()
}

// each waits until a condition holds for all pods.
func (p *pods) each(what string, happened func(h *hosts.Host) bool) {
	p.t.Helper()
	for _, h := range p.lab.Hosts[:podCount] {
		await(p.t, h.Name+" "+what, func() bool {
			if ended := p.ended(); len(ended) > 0 {
				p.t.Fatalf("%s has ended, before %s came %s", ended[0].name, h.Name, what)
			}
			return happened(h)
		})
	}
}

// wantWorlds compares the worker groups that have trained, and their ranks, sorted by time.
func (p *pods) wantWorlds(want ...string) {
	p.t.Helper()
	var worlds []string
	for _, world := range worldsOf(p.t, p.dir) {
		_, members, _ := strings.Cut(world, ": ")
		worlds = append(worlds, members)
	}
	if !slices.Equal(worlds, want) {
		p.t.Errorf("the worlds were %q, want %q", worlds, want)
	}
}
