package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// ordinal matches the host name of a numbered pod: its owner's name and its number.
var ordinal = lazyregexp.New(`^(.+)-(0|[1-9][0-9]{0,5})$`)

// kubernetes reads the facts of the pod. Kubernetes numbers the pods of an Indexed Job and of a StatefulSet, and
// gives each a DNS name if it has a subdomain with a headless service. A pod cannot find out how many pods there are.
func kubernetes(env Lookup, host Host) (*Facts, error) {
	v := &variables{env: env}
	if !v.set("KUBERNETES_SERVICE_HOST") && !v.set("JOB_COMPLETION_INDEX") {
		return nil, nil
	}
	f := &Facts{Name: Kubernetes, RunIDReused: true, NodeRank: v.number(0, "JOB_COMPLETION_INDEX")}
	indexed := v.set("JOB_COMPLETION_INDEX")
	pod, _, _ := strings.Cut(host.Name, ".")
	full, hostName := fullName(host.Hosts, pod), "the host name "+pod
	name, number, numbered := splitOrdinal(pod)
	if f.Job = pod; numbered {
		f.Job = name
	}
	if !indexed && numbered && full != "" {
		f.NodeRank = Value[int]{number, hostName}
		if number > 0 { // pod 0 may be the only one, such as the pod of a notebook
			f.Notes = append(
				f.Notes,
				hostName+": this pod is not the only one of its StatefulSet, but its job has one node, because --nnodes is not "+
					"given",
			)
		}
	}
	mine := numbered && f.NodeRank.Known() && f.NodeRank.Is == number
	if mine && full != "" {
		domain := strings.TrimPrefix(full, pod)
		f.Endpoint = Value[string]{name + "-0" + domain, "the full name " + full + " in /etc/hosts"}
		for i := range maxMoreHosts { // these hosts exist if the job has so many nodes
			f.MoreHosts = append(f.MoreHosts, fmt.Sprintf("%s-%d%s", name, i+1, domain))
		}
		f.IsHost = Value[bool]{number == 0, f.NodeRank.Source}
	}
	if mine && indexed {
		parts := slices.DeleteFunc([]string{Kubernetes, namespace(full), name}, func(s string) bool { return s == "" })
		f.RunID = Value[string]{strings.Join(parts, "-"), hostName}
	}
	if indexed && f.NodeRank.Known() {
		f.NoNodes = &Problem{
			f.NodeRank.Source,
			"this pod belongs to an Indexed Job, and Kubernetes does not say how many pods that has: " +
				"give --nnodes=N, or PET_NNODES in the pod's environment; --nnodes=1 if each pod is a job of its own",
		}
	}
	if !f.Endpoint.Known() {
		f.NoEndpoint = noPodEndpoint(f, full)
	}
	return f, v.err
}

// splitOrdinal splits a host name that ends with a number, such as NAME-2.
func splitOrdinal(pod string) (name string, number int, ok bool) {
	parts := ordinal().FindStringSubmatch(pod)
	if parts == nil {
		return "", 0, false
	}
	number, err := strconv.Atoi(parts[2])
	return parts[1], number, err == nil
}

// noPodEndpoint says what the pod needs to find the other pods.
func noPodEndpoint(f *Facts, full string) string {
	var missing []string
	if !f.NodeRank.Known() {
		missing = append(missing, "no index (a Job with completionMode: Indexed or a StatefulSet provides one)")
	}
	if full == "" {
		missing = append(
			missing,
			"no name that other pods can look up (subdomain: NAME in its spec and a headless service NAME provide one)",
		)
	}
	if missing == nil {
		missing = []string{"a host name that does not end with its index"}
	}
	return "its pods cannot find each other, because this one has " + strings.Join(missing, " and ") +
		": add that, or give --rdzv-endpoint=HOST[:PORT], the same in all pods"
}

// fullName finds the pod's name with its domain in /etc/hosts. The kubelet writes it there: address, full name, name.
// It is empty if the pod has no subdomain.
func fullName(hosts, pod string) string {
	for line := range strings.Lines(hosts) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		for _, name := range fields[1:] {
			// NAME.SUBDOMAIN.NAMESPACE.svc.DOMAIN
			if strings.HasPrefix(name, pod+".") && strings.Count(name, ".") >= 3 && strings.Contains(name, ".svc.") {
				return name
			}
		}
	}
	return ""
}

// namespace returns the namespace in the pod's full name, or "".
func namespace(full string) string {
	labels := strings.Split(full, ".")
	if len(labels) < 3 {
		return ""
	}
	return labels[2]
}
