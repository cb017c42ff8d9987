package config

// Command returns the program of every worker and its arguments, as torchrun
// builds them: python -u [-m] SCRIPT ARGS..., or SCRIPT ARGS... with --no-python,
// when python is not used. $local_rank is replaced later, for each worker.
func (c *Config) Command(python string) (program string, args []string) {
	if c.NoPython {
		return c.Script, c.ScriptArgs
	}
	args = []string{"-u"}
	if c.Module {
		args = append(args, "-m")
	}
	args = append(args, c.Script)
	return python, append(args, c.ScriptArgs...)
}
