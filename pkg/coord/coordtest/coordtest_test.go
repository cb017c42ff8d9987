package coordtest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	t.Parallel()
	RunInBubble(t, func(testing.TB) Harness { return newMemory("", ttl).harness() })
}

// TestRunWithoutExpiry runs the suite on a store without expiry and faults.
func TestRunWithoutExpiry(t *testing.T) {
	t.Parallel()
	RunInBubble(t, func(testing.TB) Harness {
		return Harness{Open: newMemory("", time.Hour).harness().Open}
	})
}

// bugEnv makes a test binary run the suite on a memory store with that bug.
const bugEnv = "ELASTICRUN_TEST_COORD_BUG"

func TestBug(t *testing.T) { //nolint:tparallel // it is alone in its process
	bug := os.Getenv(bugEnv)
	if bug == "" {
		return // TestBugs runs it in another process
	}
	RunInBubble(t, func(testing.TB) Harness {
		h := newMemory(bug, ttl).harness()
		h.Timeout = 3 * ttl
		return h
	})
}

// TestBugs runs the suite on faulty stores, each in a process of its own, and checks that it fails.
func TestBugs(t *testing.T) {
	t.Parallel()
	for bug, caught := range map[string]string{ // the case that fails
		"only the first guard counts":                "AllOrNothing",
		"a guard asks only whether the key is there": "Guards",
		"guards are checked before the lock":         "OneWinner",
		"a refused commit leaves a trace":            "AllOrNothing",
		"revisions do not increase":                  "Revisions",
		"a put moves the create-revision":            "Guards",
		"deletes of missing keys are delivered":      "Deletes",
		"no limits":                                  "Limits",
		"session ids repeat":                         "SessionIDs",
		"Close ends nothing":                         "Close",
		"keys outlive their session":                 "Expiry",
		"keys of a session are deleted one by one":   "Close",
		"the first owner stays":                      "Owners",
		"KeepAlive does nothing":                     "KeepAlive",
		"a watch lags behind KeepAlive":              "KeepAliveFollowsCommits",
		"sessions end early":                         "Expiry",
		"a lost session goes on":                     "Expiry",
		"Lost is never closed":                       "ExpiryAsked",
		"a watch outlives its session":               "Close",
		"a put does not renew the TTL":               "KeyTTLRenewed",
		"a TTL stays for good":                       "KeyTTLTaken",
		"a commit is split":                          "WatchWhole",
		"all commits are delivered":                  "WatchPrefix",
		"a prefix is a folder":                       "WatchPrefix",
		"a slow watch blocks the store":              "WatchSlow",
		"a slow watch loses changes":                 "WatchSlow",
		"handle is called concurrently":              "WatchSlow",
		"the cause is forgotten":                     "WatchEnds",
		"no Resync":                                  "Watch",
		"lists are stale":                            "Linearizable",
		"a cut network loses the session at once":    "CutLong",
		"a broken connection goes unnoticed":         "Break",
		"a Resync hides deletes":                     "Break",
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBug$/^"+caught+"$", "-test.v")
			cmd.Env = append(os.Environ(), bugEnv+"="+bug)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestBug/"+caught) ||
				strings.Contains(string(out), "panic:") {
				t.Errorf("case %s does not detect the bug %q (%v):\n%s", caught, bug, err, out)
			}
		})
	}
}
