package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Torchrun ignores variables that it does not know without a word, so a typing error goes unnoticed.
func TestUnknownVariables(t *testing.T) {
	clean(t)
	setEnv(t, "PET_NNODES=1", "PET_RDZV_SECRET=s", "PET_NPROC_PERNODE=2", "PET_NUMA_BINDING=node", "PET_X\x1b=1", "PET_exit_Barrier_timeout=3", "CARPET_X=1")
	c, err := load("s.py")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PET_NPROC_PERNODE: no flag has this variable, so it is ignored; the nearest is PET_NPROC_PER_NODE",
		"PET_NUMA_BINDING: --numa-binding has no variable, so it is ignored",
		`"PET_X\x1b": no flag has this variable, so it is ignored`,
		"PET_exit_Barrier_timeout: it is ignored, because torchrun's variables are in upper case: PET_EXIT_BARRIER_TIMEOUT",
	}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
