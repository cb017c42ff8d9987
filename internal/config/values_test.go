package config

import (
	"testing"

	"github.com/rs/zerolog"
)

func TestParseLevel(t *testing.T) {
	for text, want := range map[string]zerolog.Level{
		"NOTSET": zerolog.TraceLevel, "trace": zerolog.TraceLevel, "DEBUG": zerolog.DebugLevel, "Info": zerolog.InfoLevel,
		"WARNING": zerolog.WarnLevel, "warn": zerolog.WarnLevel, "error": zerolog.ErrorLevel, "CRITICAL": zerolog.FatalLevel, "fatal": zerolog.FatalLevel,
	} {
		if got, err := parseLevel(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}
