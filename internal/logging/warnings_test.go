package logging

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// TestWarnings checks that Warnings gets every warning, whatever the level of the log on the console.
func TestWarnings(t *testing.T) {
	var warnings Warnings
	log, lines := New("json", zerolog.ErrorLevel, io.Discard, &warnings)
	log.Info().Msg("no warning")
	log.Warn().Err(errors.New("disk\nfull")).Int("rank", 3).Str("file", "/x").Msg("output is lost")
	log.Error().Msg("worse")
	if err := lines.Close(); err != nil {
		t.Fatal(err)
	}
	count, got := warnings.List()
	for i := range got {
		if got[i].Time.IsZero() {
			t.Error("no time")
		}
		got[i].Time = report.Time{}
	}
	want := []report.Warning{
		{Level: "warn", Text: "output is lost: disk; full (file=/x, rank=3)"},
		{Level: "error", Text: "worse"},
	}
	if diff := cmp.Diff(want, got); count != 2 || diff != "" {
		t.Errorf("%d warnings (-want +got):\n%s", count, diff)
	}
	for range 3 * report.MaxWarnings {
		log.Warn().Msg("again")
	}
	if count, got = warnings.List(); count != 2+3*report.MaxWarnings || len(got) != report.MaxWarnings {
		t.Errorf("%d warnings, %d kept", count, len(got))
	}
}
