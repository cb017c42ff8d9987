package scheduler

import "testing"

const (
	pod   = "KUBERNETES_SERVICE_HOST=10.96.0.1"
	hosts = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n10.1.2.3\ttrain-2.train.ml.svc.cluster.local\ttrain-2\n"
	bare  = "127.0.0.1\tlocalhost\n10.1.2.3\ttrain-2\n"
)

func TestKubernetes(t *testing.T) {
	const lacks = "its pods cannot find each other, because this one has "
	const add = ": add that, or give --rdzv-endpoint=HOST[:PORT], the same in all pods"
	const noIndex = "no index (a Job with completionMode: Indexed or a StatefulSet provides one)"
	const noName = "no name that other pods can look up (subdomain: NAME in its spec and a headless service NAME provide one)"
	const noCount = "this pod belongs to an Indexed Job, and Kubernetes does not say how many pods that has: " +
		"give --nnodes=N, or PET_NNODES in the pod's environment; --nnodes=1 if each pod is a job of its own"
	const self = "the full name train-2.train.ml.svc.cluster.local in /etc/hosts"
	index := value(2, "JOB_COMPLETION_INDEX=2")
	indexed := Facts{
		Name: "kubernetes", Job: "train", RunID: value("kubernetes-ml-train", "the host name train-2"), RunIDReused: true, NodeRank: index,
		Endpoint: value("train-0.train.ml.svc.cluster.local", self), IsHost: value(false, index.Source),
		NoNodes: &Problem{index.Source, noCount},
	}
	set := indexed
	set.RunID, set.NoNodes, set.NodeRank, set.IsHost.Source = Value[string]{}, nil, value(
		2,
		"the host name train-2",
	), "the host name train-2"
	set.Notes = []string{
		"the host name train-2: this pod is not the only one of its StatefulSet, but its job has one node, because --nnodes is not given",
	}
	tests := []struct {
		name string
		env  map[string]string
		host Host
		want Facts
		err  string
	}{
		{"an Indexed Job", vars(pod, "JOB_COMPLETION_INDEX=2"), Host{"train-2", hosts}, indexed, ""},
		{
			"the host name is the full one",
			vars(pod, "JOB_COMPLETION_INDEX=2"),
			Host{"train-2.train.ml.svc.cluster.local", hosts},
			indexed,
			"",
		},
		{"an Indexed Job without subdomain", vars(pod, "JOB_COMPLETION_INDEX=2"), Host{"train-2", bare}, Facts{
			Name: "kubernetes", Job: "train", RunID: value("kubernetes-train", "the host name train-2"), RunIDReused: true, NodeRank: index,
			NoNodes: &Problem{index.Source, noCount}, NoEndpoint: lacks + noName + add,
		}, ""},
		{"a StatefulSet", vars(pod), Host{"train-2", hosts}, set, ""},
		{"a StatefulSet without subdomain", vars(pod), Host{"train-2", bare}, Facts{
			Name: "kubernetes", Job: "train", RunIDReused: true, NoEndpoint: lacks + noIndex + " and " + noName + add,
		}, ""},
		{"a Deployment", vars(pod), Host{"web-7d4b9c-x2x4z", bare}, Facts{
			Name: "kubernetes", Job: "web-7d4b9c-x2x4z", RunIDReused: true, NoEndpoint: lacks + noIndex + " and " + noName + add,
		}, ""},
		{"another pod's name", vars(pod), Host{"train", "10.1.2.3 train-2.train.ml.svc.cluster.local train-2\n"}, Facts{
			Name: "kubernetes", Job: "train", RunIDReused: true, NoEndpoint: lacks + noIndex + " and " + noName + add,
		}, ""},
		{
			"an index and another host name",
			vars(pod, "JOB_COMPLETION_INDEX=2"),
			Host{"worker", "10.1.2.3 worker.train.ml.svc.cluster.local worker"},
			Facts{
				Name: "kubernetes", Job: "worker", RunIDReused: true, NodeRank: index,
				NoNodes: &Problem{index.Source, noCount}, NoEndpoint: lacks + "a host name that does not end with its index" + add,
			},
			"",
		},
		{"an index that is none", vars(pod, "JOB_COMPLETION_INDEX=two"), Host{"web", bare}, Facts{
			Name: "kubernetes", Job: "web", RunIDReused: true, NoEndpoint: lacks + noIndex + " and " + noName + add,
		}, "JOB_COMPLETION_INDEX=two: must be a whole number between 0 and 1048576"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Detect(lookup(tt.env), tt.host)
			check(t, tt.want, got, tt.err, err)
		})
	}
	first, _ := Detect(
		lookup(vars(pod, "JOB_COMPLETION_INDEX=0")),
		Host{"train-0", "10.1.2.3 train-0.train.ml.svc.cluster.local train-0"},
	)
	if first.Endpoint.Is != "train-0.train.ml.svc.cluster.local" || !first.IsHost.Is {
		t.Errorf("the first pod is told %+v", first)
	}
}

func TestMPI(t *testing.T) {
	const open = "the host of rank 0 is unknown: give it to all processes, by mpirun -x MASTER_ADDR=HOST ..., or by --rdzv-endpoint=HOST[:PORT]"
	const hydra = "the host of rank 0 is unknown: give it to all processes, by mpiexec -genv MASTER_ADDR HOST ..., or by --rdzv-endpoint=HOST[:PORT]"
	const other = "the host of rank 0 is unknown: give it to all processes, by MASTER_ADDR=HOST in the environment of all, or by --rdzv-endpoint=HOST[:PORT]"
	const unclear = "the number of nodes is unknown, and whether each has one such process: give --nnodes=N, or --standalone to run a job in each process"
	const ompi = "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=0"
	const ppr, ppn = "mpirun --map-by ppr:1:node elasticrun ...", "mpiexec -ppn 1 elasticrun ..."
	tests := []struct {
		name string
		env  map[string]string
		want Facts
		err  string
	}{
		{"one a node", vars(ompi, "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=prterun-a-7@1"), Facts{
			Name: "openmpi", Job: "prterun-a-7@1", RunID: value("openmpi-prterun-a-7-1", "the job's name prterun-a-7@1"), RunIDReused: true, PortKey: "prterun-a-7@1",
			Nodes: value(
				4,
				"OMPI_COMM_WORLD_SIZE=4",
			), NodeRank: value(3, "OMPI_COMM_WORLD_RANK=3"), OneEach: ppr, NoEndpoint: open,
		}, ""},
		{"two a node", vars(ompi, "OMPI_COMM_WORLD_LOCAL_SIZE=2"), Facts{
			Name: "openmpi", Tasks: value(4, "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2"), TaskRank: value(3, "OMPI_COMM_WORLD_RANK=3"), OneEach: ppr, NoEndpoint: open,
		}, ""},
		{"all on one node", vars(ompi, "OMPI_COMM_WORLD_LOCAL_SIZE=4"), Facts{
			Name: "openmpi", Tasks: value(4, "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4"), TaskRank: value(3, "OMPI_COMM_WORLD_RANK=3"), OneEach: ppr, NoEndpoint: open,
			OneMachine: true,
			Endpoint: value(
				"localhost",
				"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4",
			), IsHost: value(false, "OMPI_COMM_WORLD_RANK=3"),
		}, ""},
		{"a single one", vars("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1"), Facts{
			Name: "openmpi", Nodes: value(1, "OMPI_COMM_WORLD_SIZE=1"), NodeRank: value(0, "OMPI_COMM_WORLD_RANK=0"), OneEach: ppr, NoEndpoint: open,
		}, ""},
		{"mpirun within a Slurm job", vars(step3, ompi, "OMPI_COMM_WORLD_LOCAL_SIZE=1"), Facts{
			Name: "openmpi", Nodes: value(4, "OMPI_COMM_WORLD_SIZE=4"), NodeRank: value(3, "OMPI_COMM_WORLD_RANK=3"), OneEach: ppr, NoEndpoint: open,
		}, ""},
		{
			"a rank above the size", vars(ompi, "OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_LOCAL_SIZE=1"),
			Facts{Name: "openmpi", OneEach: ppr, NoEndpoint: open},
			"OMPI_COMM_WORLD_RANK=4: must be below OMPI_COMM_WORLD_SIZE=4",
		},
		{"Hydra", vars("PMI_SIZE=2 PMI_RANK=1 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0"), Facts{
			Name: "pmi", Nodes: value(2, "PMI_SIZE=2"), NodeRank: value(1, "PMI_RANK=1"), OneEach: ppn, NoEndpoint: hydra,
		}, ""},
		{"Hydra, two a node", vars("PMI_SIZE=4 PMI_RANK=1 MPI_LOCALNRANKS=2"), Facts{
			Name: "pmi", Tasks: value(4, "PMI_SIZE=4 MPI_LOCALNRANKS=2"), TaskRank: value(1, "PMI_RANK=1"), OneEach: ppn, NoEndpoint: hydra,
		}, ""},
		{"PMI alone", vars("PMI_SIZE=4 PMI_RANK=1"), Facts{
			Name: "pmi", NodeRank: value(1, "PMI_RANK=1"), OneEach: "one process per node", NoEndpoint: other, NoNodes: &Problem{"PMI_SIZE=4", unclear},
		}, ""},
		{"PMI on a Cray", vars("PMI_SIZE=4 PMI_RANK=1 PMI_LOCAL_SIZE=1"), Facts{
			Name: "pmi", Nodes: value(4, "PMI_SIZE=4"), NodeRank: value(1, "PMI_RANK=1"), OneEach: "one process per node", NoEndpoint: other,
		}, ""},
		{"PMIx alone", vars("PMIX_RANK=1"), Facts{
			Name: "pmi", NodeRank: value(1, "PMIX_RANK=1"), OneEach: "one process per node", NoEndpoint: other, NoNodes: &Problem{"PMIX_RANK=1", unclear},
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Detect(lookup(tt.env), Host{})
			check(t, tt.want, got, tt.err, err)
		})
	}
	srun, err := Detect(lookup(vars(step3, "PMI_SIZE=3 PMI_RANK=1 PMIX_RANK=1")), Host{})
	if srun.Name != Slurm || err != nil {
		t.Errorf("srun with PMI is taken for %s, %v", srun.Name, err)
	}
}
