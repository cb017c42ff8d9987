package workerlog

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All combinations of redirect and tee for one stream, shown or filtered out, with
// and without log paths.
func TestOutputs(t *testing.T) {
	const (
		console = "console"
		file    = "file"
		both    = "file+prefixed console+filtered"
		plain   = "prefixed console"
		nowhere = "nowhere"
	)
	for _, tt := range []struct {
		redirect, tee, shown bool
		want, wantNoFiles    string
	}{
		{redirect: false, tee: false, shown: true, want: console, wantNoFiles: console},
		{redirect: true, tee: false, shown: true, want: file, wantNoFiles: nowhere},
		{redirect: false, tee: true, shown: true, want: both, wantNoFiles: plain},
		{redirect: true, tee: true, shown: true, want: both, wantNoFiles: plain},
		{redirect: false, tee: false, shown: false, want: nowhere, wantNoFiles: nowhere},
		{redirect: true, tee: false, shown: false, want: file, wantNoFiles: nowhere},
		{redirect: false, tee: true, shown: false, want: file, wantNoFiles: nowhere},
		{redirect: true, tee: true, shown: false, want: file, wantNoFiles: nowhere},
	} {
		for _, std := range []StreamSet{Stdout, Stderr} {
			for _, files := range []LogFiles{{}, {Stdout: "o", Stderr: "e", Error: "j", FilteredStdout: "fo", FilteredStderr: "fe", Timeline: "t"}} {
				name := fmt.Sprintf(
					"%v redirect=%v tee=%v shown=%v files=%v",
					std,
					tt.redirect,
					tt.tee,
					tt.shown,
					files != LogFiles{},
				)
				t.Run(name, func(t *testing.T) {
					rules := OutputRules{Rotation: Rotation{MaxSize: 9}, StdoutFilters: []string{"x"}, StderrFilters: []string{"y"}}
					if tt.redirect {
						rules.Redirects.Default = std
					}
					if tt.tee {
						rules.Tee = StreamSpec{ByRank: []StreamRange{{RankRange{false, 1, 1}, std}}}
					}
					rules.Shown = RankSet{{Global: true, First: 4, Last: 4}}
					if tt.shown {
						rules.Shown = RankSet{{Global: true, First: 4, Last: 5}}
					}
					stdout, stderr := rules.Outputs(Ranks{1, 5}, Prefix{"P:"}, files)

					// The other stream has no redirect and no tee.
					other := Output{Console: tt.shown}
					got, gotOther, path, filter, filtered := stdout, stderr, files.Stdout, "x", files.FilteredStdout
					want := tt.want
					if files == (LogFiles{}) {
						want = tt.wantNoFiles
					}
					if std == Stderr {
						got, gotOther, path, filter, filtered = stderr, stdout, files.Stderr, "y", files.FilteredStderr
					}
					outputs := map[string]Output{
						console: {Console: true},
						file:    {File: path, Rotation: Rotation{MaxSize: 9}, Timeline: "t"},
						both: {
							File:         path,
							Rotation:     Rotation{MaxSize: 9},
							Timeline:     "t",
							Console:      true,
							Prefix:       Prefix{"P:"},
							Filters:      []string{filter},
							FilteredFile: filtered,
						},
						plain:   {Console: true, Prefix: Prefix{"P:"}},
						nowhere: {},
					}
					if diff := cmp.Diff(outputs[want], got); diff != "" {
						t.Errorf("%v (-want +got):\n%s", std, diff)
					}
					if diff := cmp.Diff(other, gotOther); diff != "" {
						t.Errorf("other stream (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

func TestOutputsOfZeroRules(t *testing.T) {
	stdout, stderr := OutputRules{}.Outputs(
		Ranks{7, 7},
		Prefix{"P:"},
		LogFiles{Stdout: "o", Stderr: "e", FilteredStdout: "fo"},
	)
	want := Output{Console: true}
	if diff := cmp.Diff([]Output{want, want}, []Output{stdout, stderr}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
