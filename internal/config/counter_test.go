package config

// machine is a Counter with fixed answers.
type machine struct {
	cpus, gpus, xpus int
	integrated       bool // the GPUs are integrated ones
	err              error
}

func (m machine) CPUs() (int, error) { return m.cpus, nil }
func (m machine) GPUs() (int, error) { return m.gpus, m.err }
func (m machine) XPUs() (int, error) { return m.xpus, m.err }

func (m machine) Accelerators() (int, error) {
	if m.integrated {
		return 0, m.err
	}
	if m.gpus > 0 {
		return m.gpus, m.err
	}
	return m.xpus, m.err
}
