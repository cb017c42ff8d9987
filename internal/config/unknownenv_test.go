package config

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A variable without effect is named, because it may be a typing error. Those of other programs are not.
func TestUnknownVariables(t *testing.T) {
	clean(t)
	setEnv(t, "PET_NNODES=1", "PET_RDZV_SECRET=the-job's-own-secret", "PET_NPROC_PERNODE=2", "PET_NUMA_BINDING=node", "PET_X\x1b=1", "PET_exit_Barrier_timeout=3",
		"CARPET_X=1",
		"ELASTICRUN_REPROT=r", "ELASTICRUN_NNODES=1", "ELASTICRUN_ROUND=2", "ELASTICRUN_STORE_SERVICE_HOST=h",
		"ELASTICRUN_STORE_PORT=tcp://h:29400", "ELASTICRUN_STORE_PORT_29400_TCP=h", "ELASTICRUN_RPC_ADDR=h")
	c, err := load("s.py")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ELASTICRUN_NNODES: ignored; the variable of --nnodes is PET_NNODES",
		"ELASTICRUN_REPROT: no flag has this variable, so it is ignored; the nearest is ELASTICRUN_REPORT",
		"PET_NPROC_PERNODE: no flag has this variable, so it is ignored; the nearest is PET_NPROC_PER_NODE",
		"PET_NUMA_BINDING: --numa-binding has no variable, so it is ignored",
		`"PET_X\x1b": no flag has this variable, so it is ignored`,
		"PET_exit_Barrier_timeout: it is ignored, because the variables are in upper case: PET_EXIT_BARRIER_TIMEOUT",
	}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// A variable that the page documents is known.
func TestDocumentedVariablesAreKnown(t *testing.T) {
	text, err := os.ReadFile("../../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\b(ELASTICRUN|PET)_[A-Z_]*[A-Z]\b`).FindAllString(string(text), -1)
	if len(found) == 0 {
		t.Fatal("the page names no variable")
	}
	for _, name := range found {
		if got := unknownVariables(Flags(), []string{name + "=1"}); got != nil {
			t.Error(got)
		}
	}
}
