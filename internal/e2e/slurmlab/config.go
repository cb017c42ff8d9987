package slurmlab

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Nodes is the number of nodes: n1, n2 and n3, at 10.76.0.1 to 10.76.0.3.
const Nodes = 3

// The controller listens on this port, and node K on this port plus K.
const controllerPort = 17000

// KillWait is the time, in seconds, from SIGTERM to SIGKILL of a canceled job. Slurm's default is 30.
const KillWait = 5

// config returns slurm.conf for a cluster with its files in dir, on the machine named host.
func config(dir, host string) string {
	lines := []string{
		"ClusterName=lab",
		// A run id is made of the job's id. The id must not be that of a job that ran when an earlier lab was killed.
		fmt.Sprintf("FirstJobId=%d", 1000+rand.IntN(1_000_000)),
		fmt.Sprintf("SlurmctldHost=%s(10.76.0.1)", host),
		fmt.Sprintf("SlurmctldPort=%d", controllerPort),
		"SlurmUser=root",
		"SlurmdUser=root",
		"AuthType=auth/munge",
		"AuthInfo=socket=" + dir + "/munge.sock",
		// No control groups: those of the machine stay unchanged.
		"ProctrackType=proctrack/linuxproc",
		"TaskPlugin=task/none",
		"MpiDefault=none",
		"ReturnToService=2",
		"SelectType=select/cons_tres",
		"SelectTypeParameters=CR_Core",
		"StateSaveLocation=" + dir + "/state",
		"SlurmctldPidFile=" + dir + "/slurmctld.pid",
		"SlurmctldLogFile=" + dir + "/slurmctld.log",
		"SlurmdSpoolDir=" + dir + "/spool-%n",
		"SlurmdPidFile=" + dir + "/slurmd-%n.pid",
		"SlurmdLogFile=" + dir + "/slurmd-%n.log",
		// Only the backfill scheduler starts heterogeneous jobs. By default it runs every 30 s.
		"SchedulerParameters=batch_sched_delay=1,sched_interval=2,sched_min_interval=0,bf_interval=1",
		fmt.Sprintf("KillWait=%d", KillWait),
		"SlurmdTimeout=5",
	}
	for k := 1; k <= Nodes; k++ {
		lines = append(
			lines,
			fmt.Sprintf("NodeName=n%d NodeHostname=%s NodeAddr=10.76.0.%d Port=%d CPUs=2", k, host, k, controllerPort+k),
		)
	}
	lines = append(lines, "PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
	return strings.Join(lines, "\n") + "\n"
}

// fields parses a line of scontrol --oneliner: KEY=VALUE pairs, separated by spaces. Of a value with spaces it keeps
// the first word.
func fields(line string) map[string]string {
	found := map[string]string{}
	for field := range strings.FieldsSeq(line) {
		if key, value, ok := strings.Cut(field, "="); ok {
			found[key] = value
		}
	}
	return found
}

// listening returns the ports in state LISTEN of a table in the form of /proc/net/tcp.
func listening(table string) []int {
	const listen = "0A"
	var ports []int
	for line := range strings.Lines(table) {
		columns := strings.Fields(line)
		if len(columns) < 4 || columns[3] != listen {
			continue
		}
		_, hex, _ := strings.Cut(columns[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			ports = append(ports, int(port))
		}
	}
	return ports
}
