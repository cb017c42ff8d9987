// Package testenv tells tests what this machine offers and gives them what the
// project builds: interpreters with a real torch, the elasticrun binary, marks
// that find a job's processes, and the scale of long tests. Only tests import it.
//
// Where something is missing, the test is skipped with the reason; with
// ELASTICRUN_REQUIRE_ALL=1, which the pipeline sets, it fails instead, so that
// nothing is skipped unseen.
//
// All functions are safe for concurrent use. What is costly to find out (does
// that interpreter import torch?, the binary) is found out once a test process.
package testenv
