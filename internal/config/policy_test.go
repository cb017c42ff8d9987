package config

import (
	"slices"
	"strings"
	"testing"
)

func TestPolicyFlags(t *testing.T) {
	c, err := resolveArgs(machine{}, "--final-codes=3,10-12", "--exclude-node-codes=55", "--max-same-failures=3",
		"--max-restarts-without-progress=2", "--max-restarts=2", "--nnodes=1:2", "--rdzv-endpoint=a", "s.py")
	switch {
	case err != nil:
		t.Fatal(err)
	case c.FinalCodes.String() != "3,10-12", c.ExcludeNodeCodes.String() != "55", c.MaxSameFailures != 3, c.MaxIdleRestarts != 2:
		t.Errorf("%v, %v, %d, %d", c.FinalCodes, c.ExcludeNodeCodes, c.MaxSameFailures, c.MaxIdleRestarts)
	case len(c.Warnings) > 0:
		t.Errorf("%q", c.Warnings)
	}
	c, err = resolveArgs(machine{}, "--max-same-failures=4", "--max-restarts-without-progress=3", "--max-restarts=2",
		"--exclude-node-codes=55", "s.py")
	want := []string{
		"--exclude-node-codes=55: has no effect on a job of one node, which cannot run without it",
		"--max-restarts-without-progress=3: has no effect with --max-restarts=2: the job fails before",
		"--max-same-failures=4: has no effect with --max-restarts=2: the job fails before",
	}
	if err != nil || !slices.Equal(c.Warnings, want) {
		t.Errorf("%q, %v", c.Warnings, err)
	}
	if _, err := resolveArgs(machine{}, "--notify-cmd=  ", "s.py"); err == nil || err.Error() != `--notify-cmd="  ": is blank` {
		t.Errorf("%v", err)
	}
	for args, problem := range map[string]string{
		"--final-codes=5 --exclude-node-codes=4-6": "--exclude-node-codes=4-6: has 5, and so has --final-codes, which ends the job",
		"--max-same-failures=1":                    "--max-same-failures=1: must be 0 or at least 2: one failure is not the same as another",
		"--final-codes=300":                        `--final-codes=300: has "300"; it may have codes from 1 to 255 and ranges such as 10-12`,
	} {
		if _, err := resolveArgs(machine{}, append(strings.Fields(args), "s.py")...); err == nil || err.Error() != problem {
			t.Errorf("%s: %v, want %s", args, err, problem)
		}
	}
}
