package manifests

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// manifest holds the objects of one file.
type manifest struct {
	services []core.Service
	jobs     []batch.Job
	sets     []apps.StatefulSet
}

// load decodes a file strictly: an unknown field and a duplicate field are errors.
func load(t *testing.T, name string) manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../../examples/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 Service":
			m.services = append(m.services, decode[core.Service](t, document))
		case "batch/v1 Job":
			m.jobs = append(m.jobs, decode[batch.Job](t, document))
		case "apps/v1 StatefulSet":
			m.sets = append(m.sets, decode[apps.StatefulSet](t, document))
		default:
			t.Fatalf("an object of another kind: %+v", kind)
		}
	}
	return m
}

func decode[T any](t *testing.T, document []byte) T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// service returns the service with a name.
func (m manifest) service(t *testing.T, name string) core.Service {
	t.Helper()
	i := slices.IndexFunc(m.services, func(s core.Service) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no service %q", name)
	}
	return m.services[i]
}

func TestIndexedJob(t *testing.T) {
	m := load(t, "indexed-job.yaml")
	if len(m.jobs) != 1 || len(m.services) != 1 || len(m.sets) != 0 {
		t.Fatalf("%d jobs, %d services, %d stateful sets", len(m.jobs), len(m.services), len(m.sets))
	}
	job := m.jobs[0].Spec
	pod := job.Template
	checkPod(t, m, pod)
	checkSecret(t, pod)
	env := environment(pod)
	nodes, err := strconv.Atoi(env["PET_NNODES"])
	switch {
	case job.CompletionMode == nil || *job.CompletionMode != batch.IndexedCompletion:
		t.Error("the job is not indexed")
	case err != nil || job.Completions == nil || job.Parallelism == nil ||
		int(*job.Completions) != nodes || *job.Parallelism != *job.Completions:
		t.Errorf("completions %v, parallelism %v, PET_NNODES %q", job.Completions, job.Parallelism, env["PET_NNODES"])
	case job.BackoffLimitPerIndex == nil || job.MaxFailedIndexes == nil || job.ActiveDeadlineSeconds == nil:
		t.Error("nothing bounds how often pods are tried")
	case pod.Spec.RestartPolicy != core.RestartPolicyNever:
		t.Errorf("restartPolicy %s, and a policy for failures", pod.Spec.RestartPolicy)
	}
	checkNodes(t, m.service(t, pod.Spec.Subdomain), pod)
	if port := m.services[0].Spec.Ports[0].Port; port != 29400 {
		t.Errorf("the service has port %d, and the endpoint that elasticrun infers 29400", port)
	}
	inferred(t, env, "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_RDZV_BACKEND", "PET_NODE_RANK")
}

// inferred fails the test if a manifest sets what elasticrun infers.
func inferred(t *testing.T, env map[string]string, names ...string) {
	t.Helper()
	for _, name := range names {
		if value, given := env[name]; given {
			t.Errorf("%s=%s is given, and would be inferred", name, value)
		}
	}
}

// TestFailurePolicy checks that the failure policy treats each of elasticrun's own codes as docs/exit-codes.md says,
// and names no other code.
func TestFailurePolicy(t *testing.T) {
	page, err := os.ReadFile("../../../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(page), "\n## ") // the launcher's
	job := load(t, "indexed-job.yaml").jobs[0].Spec
	actions := map[int32]batch.PodFailurePolicyAction{}
	for i, rule := range job.PodFailurePolicy.Rules {
		if rule.OnExitCodes == nil {
			if i > 0 || len(rule.OnPodConditions) != 1 || rule.OnPodConditions[0].Type != core.DisruptionTarget {
				t.Errorf("rule %d: %+v; what a disruption did must come first", i, rule)
			}
			continue
		}
		if rule.OnExitCodes.Operator != batch.PodFailurePolicyOnExitCodesOpIn ||
			*rule.OnExitCodes.ContainerName != job.Template.Spec.Containers[0].Name {
			t.Errorf("rule %d: %+v", i, rule.OnExitCodes)
		}
		for _, code := range rule.OnExitCodes.Values {
			actions[code] = rule.Action
			if !strings.Contains(table, "\n| "+strconv.Itoa(int(code))+" |") {
				t.Errorf("docs/exit-codes.md has no code %d", code)
			}
		}
	}
	for code, want := range map[int32]batch.PodFailurePolicyAction{
		2: batch.PodFailurePolicyActionFailJob, 71: batch.PodFailurePolicyActionIgnore,
		72: batch.PodFailurePolicyActionIgnore,
		75: batch.PodFailurePolicyActionIgnore,
	} {
		if actions[code] != want {
			t.Errorf("code %d: %q, want %q", code, actions[code], want)
		}
	}
}

func TestStatefulSet(t *testing.T) {
	m := load(t, "statefulset.yaml")
	if len(m.sets) != 2 || len(m.services) != 2 || len(m.jobs) != 0 {
		t.Fatalf("%d stateful sets, %d services, %d jobs", len(m.sets), len(m.services), len(m.jobs))
	}
	for _, set := range m.sets {
		pod := set.Spec.Template
		checkPod(t, m, pod)
		checkSecret(t, pod)
		if !matches(set.Spec.Selector.MatchLabels, pod.Labels) ||
			!matches(m.service(t, set.Spec.ServiceName).Spec.Selector, pod.Labels) {
			t.Errorf("%s: the labels %v are not what is selected", set.Name, pod.Labels)
		}
	}
	store, nodes := m.sets[0].Spec, m.sets[1].Spec
	container, service := store.Template.Spec.Containers[0], m.service(t, store.ServiceName)
	env := environment(nodes.Template)
	_, most, _ := strings.Cut(env["PET_NNODES"], ":")
	if most != strconv.Itoa(int(*nodes.Replicas)) || nodes.PodManagementPolicy != apps.ParallelPodManagement ||
		*store.Replicas != 1 {
		t.Errorf(
			"replicas %d (%s), PET_NNODES %s, stores %d",
			*nodes.Replicas,
			nodes.PodManagementPolicy,
			env["PET_NNODES"],
			*store.Replicas,
		)
	}
	if want := service.Name + ":" + strconv.Itoa(int(service.Spec.Ports[0].Port)); env["PET_RDZV_ENDPOINT"] != want {
		t.Errorf("the endpoint is %s, and the store %s", env["PET_RDZV_ENDPOINT"], want)
	}
	if env["PET_RDZV_ID"] == "" {
		t.Error("no run id for a store that may have other jobs")
	}
	inferred(t, env, "PET_RDZV_BACKEND", "PET_NODE_RANK")
	checkNodes(t, m.service(t, nodes.ServiceName), nodes.Template)
	for _, part := range []string{
		"--listen=:" + port(t, container, service.Spec.Ports[0].TargetPort.StrVal),
		"--health=:" + port(t, container, "health"),
	} {
		if !slices.Contains(container.Command, part) {
			t.Errorf("the store's command %q has no %s", container.Command, part)
		}
	}
	for _, probe := range []*core.Probe{container.ReadinessProbe, container.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/healthz" || probe.HTTPGet.Port.StrVal != "health" {
			t.Errorf("probe %+v", probe)
		}
	}
	if container.VolumeMounts[0].Name != store.VolumeClaimTemplates[0].Name ||
		!strings.HasPrefix(container.Command[len(container.Command)-1], "--data-dir="+container.VolumeMounts[0].MountPath) {
		t.Errorf("the store's data is in %v", container.Command)
	}
}

// checkSecret checks that the agents or the store in a pod read their secret from a Secret's volume, with a mode that
// lets the pod's user read it.
func checkSecret(t *testing.T, pod core.PodTemplateSpec) {
	t.Helper()
	context, container := pod.Spec.SecurityContext, pod.Spec.Containers[0]
	file := environment(pod)["ELASTICRUN_RDZV_SECRET_FILE"]
	i := slices.IndexFunc(container.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == path.Dir(file) })
	if i < 0 {
		t.Errorf("nothing is mounted where %q is: %+v", file, container.VolumeMounts)
		return
	}
	mount := container.VolumeMounts[i]
	j := slices.IndexFunc(pod.Spec.Volumes, func(v core.Volume) bool { return v.Name == mount.Name })
	if j < 0 || pod.Spec.Volumes[j].Secret == nil {
		t.Errorf("%s is no Secret's volume: %+v", mount.Name, pod.Spec.Volumes)
		return
	}
	mode := pod.Spec.Volumes[j].Secret.DefaultMode
	if !mount.ReadOnly || mode == nil || *mode != 0o440 ||
		context.FSGroup == nil || *context.FSGroup != *context.RunAsGroup {
		t.Errorf("the secret's mount %+v, mode %v, groups %+v", mount, mode, context)
	}
}

// checkPod checks every pod: an account of its own without rights, resource limits, and time to stop.
func checkPod(t *testing.T, m manifest, pod core.PodTemplateSpec) {
	t.Helper()
	context, container := pod.Spec.SecurityContext, pod.Spec.Containers[0]
	switch {
	case len(pod.Spec.Containers) != 1 || container.Command[0] != "elasticrun":
		t.Errorf("containers %+v", pod.Spec.Containers)
	case context == nil || !*context.RunAsNonRoot || *context.RunAsUser == 0 ||
		context.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
		t.Errorf("security context of the pod: %+v", context)
	case *container.SecurityContext.AllowPrivilegeEscalation || container.SecurityContext.Capabilities.Drop[0] != "ALL":
		t.Errorf("security context of the container: %+v", container.SecurityContext)
	case container.Resources.Limits.Memory().IsZero():
		t.Error("no bound on memory")
	case *pod.Spec.TerminationGracePeriodSeconds < 30:
		t.Errorf("%d s to stop", *pod.Spec.TerminationGracePeriodSeconds)
	}
}

// checkNodes checks the pods of the nodes and the service that names them.
func checkNodes(t *testing.T, service core.Service, pod core.PodTemplateSpec) {
	t.Helper()
	if service.Spec.ClusterIP != core.ClusterIPNone || !service.Spec.PublishNotReadyAddresses ||
		!matches(service.Spec.Selector, pod.Labels) {
		t.Errorf("service %s: %+v", service.Name, service.Spec)
	}
	// --shutdown-timeout is 30 s by default, and 20 s may follow it.
	if *pod.Spec.TerminationGracePeriodSeconds <= 50 {
		t.Errorf("%d s to stop", *pod.Spec.TerminationGracePeriodSeconds)
	}
	mounts, volumes := pod.Spec.Containers[0].VolumeMounts, pod.Spec.Volumes
	if len(mounts) == 0 || len(volumes) == 0 || mounts[0].Name != volumes[0].Name || mounts[0].MountPath != "/dev/shm" ||
		volumes[0].EmptyDir == nil || volumes[0].EmptyDir.Medium != core.StorageMediumMemory ||
		volumes[0].EmptyDir.SizeLimit.IsZero() {
		t.Errorf("shared memory: %+v, %+v", mounts, volumes)
	}
}

// environment returns the container's environment, with a field's path where the value comes from that field.
func environment(pod core.PodTemplateSpec) map[string]string {
	env := map[string]string{}
	for _, v := range pod.Spec.Containers[0].Env {
		env[v.Name] = v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			env[v.Name] = v.ValueFrom.FieldRef.FieldPath
		}
	}
	return env
}

// matches reports whether labels match a selector.
func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func port(t *testing.T, c core.Container, name string) string {
	t.Helper()
	i := slices.IndexFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("container %s has no port %q", c.Name, name)
	}
	return strconv.Itoa(int(c.Ports[i].ContainerPort))
}
