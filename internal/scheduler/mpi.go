package scheduler

import "strings"

// mpirun reads the facts of Open MPI's mpirun, or of Hydra (MPICH, Intel MPI).
func mpirun(env Lookup, _ Host) (*Facts, error) {
	v := &variables{env: env}
	switch {
	case v.set("OMPI_COMM_WORLD_SIZE"):
		f := &Facts{Name: OpenMPI}
		f.Job, _ = v.text("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
		f.tasks(v,
			v.number(1, "OMPI_COMM_WORLD_SIZE"), v.number(0, "OMPI_COMM_WORLD_RANK"), v.number(1, "OMPI_COMM_WORLD_LOCAL_SIZE"),
			"mpirun --map-by ppr:1:node elasticrun ...", "mpirun -x MASTER_ADDR=HOST ...")
		return f, v.err
	case v.set("MPI_LOCALNRANKS") && v.set("PMI_SIZE"):
		f := &Facts{Name: PMI}
		f.tasks(v, v.number(1, "PMI_SIZE"), v.number(0, "PMI_RANK"), v.number(1, "MPI_LOCALNRANKS"),
			"mpiexec -ppn 1 elasticrun ...", "mpiexec -genv MASTER_ADDR HOST ...")
		return f, v.err
	}
	return nil, nil
}

// pmi reads the facts of another process manager with PMI or PMIx.
func pmi(env Lookup, _ Host) (*Facts, error) {
	v := &variables{env: env}
	if !v.set("PMI_SIZE") && !v.set("PMIX_RANK") {
		return nil, nil
	}
	f := &Facts{Name: PMI}
	f.Job, _ = v.text("PMIX_NAMESPACE", "PMI_JOBID")
	f.tasks(
		v,
		v.number(1, "PMI_SIZE"),
		v.number(0, "PMI_RANK", "PMIX_RANK"),
		v.number(1, "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
		"one process per node",
		"MASTER_ADDR=HOST in the environment of all",
	)
	return f, v.err
}

// tasks sets the facts of all these process managers from the number of processes, the rank of this one, and the number
// of processes on this node. oneEach is a command that starts one process per node, and export one that passes
// MASTER_ADDR on.
func (f *Facts) tasks(v *variables, size, rank, local Value[int], oneEach, export string) {
	f.OneEach = oneEach
	if f.Job != "" {
		// Open MPI's names may hold slashes and blanks, but the run id is part of a folder's name.
		id := strings.Map(func(r rune) rune {
			if strings.ContainsRune("/ @~", r) {
				return '-'
			}
			return r
		}, f.Job)
		f.RunID, f.RunIDReused = Value[string]{f.Name + "-" + id, "the job's name " + f.Job}, true
		f.PortKey = f.Job
	}
	f.NoEndpoint = "the host of rank 0 is unknown: give it to all processes, by " + export + ", or by " +
		"--rdzv-endpoint=HOST[:PORT]"
	if rank.Known() && size.Known() && rank.Is >= size.Is {
		name, text, _ := strings.Cut(rank.Source, "=")
		v.fail(problem(name, text, "must be below %s", size.Source))
		return
	}
	switch {
	case size.Known() && local.Known() && (local.Is == 1 || size.Is == 1):
		f.Nodes, f.NodeRank = size, rank
	case size.Known() && local.Known():
		f.Tasks, f.TaskRank = size, rank
		f.Tasks.Source += " " + local.Source
	case size.Known() && size.Is == 1:
		f.Nodes, f.NodeRank = size, rank
	default:
		f.NodeRank = rank
		f.NoNodes = &Problem{rank.Source, "the number of nodes is unknown, and whether each has one such process: " +
			"give --nnodes=N, or --standalone to run a job in each process"}
		if size.Known() {
			f.NoNodes.Where = size.Source
		}
	}
	if local.Known() && size.Known() && local.Is == size.Is && size.Is > 1 {
		f.OneMachine = true
		f.Endpoint = Value[string]{"localhost", size.Source + " " + local.Source}
		f.IsHost = Value[bool]{rank.Is == 0, rank.Source}
	}
}
