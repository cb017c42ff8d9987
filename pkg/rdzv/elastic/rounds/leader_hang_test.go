package rounds

import (
	"testing"
	"time"
)

// hangJob returns the parameters of a job without restarts that looks for hangs.
func hangJob(h Hangs) Job { return jobWith(func(j *Job) { j.MaxRestarts, j.Hangs = 0, h }) }

func TestLeaderHangs(t *testing.T) {
	report := hangJob(Hangs{Timeout: 20 * time.Second, Action: HangReport})
	stop := hangJob(Hangs{Timeout: 20 * time.Second, Action: HangStop})
	auto := hangJob(Hangs{Auto: true, Action: HangStop})
	quiet := step{50, "a busy +quiet=20; b busy +quiet=20", "look1: a"}
	playAll(t, []leaderTest{
		{"a hang is reported once", report, after(twoNodeRound,
			step{50, "a busy +quiet=20", ""},
			step{51, "b busy +quiet=20", "look1: a"},
			step{53, "a busy +quiet=23 +hang", "hang1: b"},
			step{63, "", ""},
			step{90, "a busy +quiet=60 +hang", ""},
		)},
		{"no hang without a silence on all nodes", report, after(twoNodeRound,
			step{50, "a busy +quiet=20", ""},
			step{60, "b busy", ""},
		)},
		{"no hang before any node has shown a cadence", report, after(twoNodeRound,
			step{50, "a busy +quiet=20 +new; b busy +quiet=20 +new", ""},
			step{60, "b busy +quiet=30", "look1: a"},
		)},
		{"no hang while a worker is held", report, after(twoNodeRound,
			step{50, "a busy +quiet=20 +held; b busy +quiet=20", ""},
			step{60, "a busy +quiet=20", "look1: a"},
		)},
		{"off", hangJob(Hangs{}), after(twoNodeRound,
			step{50, "a busy +quiet=20; b busy +quiet=20", ""},
		)},
		{"a node whose workers have exited with 0 shows no progress", report, after(twoNodeRound,
			step{50, "b done", ""},
			step{51, "a busy +quiet=20", "look1: a"},
		)},
		{"what moves is looked at again after a pause", report, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +moving", ""},
			step{61.9, "", ""},
			step{62, "", "look2: a"},
			step{63, "a busy +quiet=20 +hang +look=2", "hang2: b"},
		)},
		{"a node that does not answer is asked again", report, after(twoNodeRound, quiet,
			step{79.9, "", ""},
			step{80, "", "look2: a"},
			step{81, "a busy +quiet=20 +hang", ""}, // of the first look
			step{82, "a busy +quiet=20 +hang +look=2", "hang2: b"},
		)},
		{"another node looks if the first is lost", report, after(threeNodeRound,
			step{50, "a busy +quiet=20; b busy +quiet=20; c busy +quiet=20", "look1: a"},
			step{51, "a gone", "halt0: b c"},
		)},
		{"progress ends the suspicion", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{53, "b busy", ""},
			step{63, "", ""},
			step{80, "b busy +quiet=20", "look2: a"},
			step{81, "a busy +quiet=20 +hang +look=2", "hang2: b"},
			step{91, "", "look3: a"},
		)},
		{"progress during a look", report, after(twoNodeRound, quiet,
			step{51, "b busy", ""},
			step{52, "a busy +quiet=20 +hang", ""},
		)},
		{"stop: the second look confirms", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{62, "", "look2: a"},
			step{63, "a busy +quiet=20 +hang +look=2", "act2: a"},
			step{64, "a failing 0", "halt0: a b"},
			step{65, "a ready; b ready", "result: failed by a, forget job, end: a b"},
		)},
		{"the second look finds something else", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{62, "", "look2: a"},
			step{63, "a busy +quiet=20 +hang +look=2 +changed", ""},
			step{73, "", "look3: a"},
			step{74, "a busy +quiet=20 +hang +look=3 +ranks=7", "hang3: b"},
			step{84, "", "look4: a"},
			step{85, "a busy +quiet=20 +moving +look=4", ""},
			step{95, "", "look5: a"},
			step{96, "a busy +quiet=20 +hang +look=5", "hang5: b"},
		)},
		{"not all nodes reply", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{62, "", "look2: a"},
			step{63, "a busy +quiet=20 +hang +look=2 +partly", ""},
			step{73, "", "look3: a"},
			step{74, "a busy +quiet=20 +hang +look=3", "act3: a"},
		)},
		{"a worker writes", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{62, "", "look2: a"},
			step{63, "a busy +quiet=20 +hang +look=2 +changed", ""},
		)},
		{"a worker has written lately what is no sign of life", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{62, "", "look2: a"},
			step{63, "a busy +quiet=20 +hang +look=2 +wrote=19", ""},
			step{73, "", "look3: a"},
			step{74, "a busy +quiet=20 +hang +look=3 +wrote=20", "act3: a"},
		)},
		{"a child is at work", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{62, "", "look2: a"},
			step{63, "a busy +quiet=20 +hang +look=2 +working", ""},
		)},
		{"auto: only proof acts, and only after minutes", auto, after(twoNodeRound,
			step{100, "a busy +quiet=60; b busy +quiet=60", "look1: a"},
			step{101, "a busy +quiet=60 +hang", "hang1: b"},
			step{131, "", "look2: a"},
			step{132, "a busy +quiet=60 +hang +look=2", ""},
			step{162, "", "look3: a"},
			step{163, "a busy +quiet=60 +hang +look=3 +proof +for=120", ""},
			step{193, "", "look4: a"},
			step{194, "a busy +quiet=60 +hang +look=4 +proof +for=300", "act4: a"},
		)},
		{"a new leader looks again", stop, after(twoNodeRound, quiet,
			step{52, "a busy +quiet=20 +hang", "hang1: b"},
			step{53, "new leader", "run0: b, look1: a"},
			step{54, "a busy +quiet=20 +hang", "hang1: b"},
		)},
	})
}

// TestLeaderRestartsAfterHang checks that a hang is charged like a failure, and that --hang-action=stop ends a job that
// has restarts left.
func TestLeaderRestartsAfterHang(t *testing.T) {
	for action, want := range map[HangAction]string{
		HangRestart: "round 1: a b (1), run1: a b",
		HangStop:    "result: failed by a beside b, forget job, end: a b",
	} {
		job := jobWith(func(j *Job) { j.Hangs = Hangs{Timeout: 20 * time.Second, Action: action} })
		play(t, job, after(twoNodeRound,
			step{50, "b failing 3", "halt0: a b"},
			step{51, "a failing 0 +hangs", ""},
			step{52, "a ready; b ready", want},
		))
	}
}
