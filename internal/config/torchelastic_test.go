package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTorchAgent(t *testing.T) {
	for _, tt := range []struct {
		name     string
		env      vars
		want     TorchAgent
		warnings []string
	}{
		{name: "nothing"},
		{name: "file timer", env: vars{"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}, want: TorchAgent{FileTimer: true}},
		{
			name: "its file", env: vars{"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TORCHELASTIC_TIMER_FILE": "/tmp/a b"},
			want: TorchAgent{FileTimer: true, TimerFile: "/tmp/a b"},
		},
		{name: "only its file", env: vars{"TORCHELASTIC_TIMER_FILE": "/tmp/a"}},
		{name: "off", env: vars{"TORCHELASTIC_ENABLE_FILE_TIMER": "0"}},
		{name: "empty", env: vars{"TORCHELASTIC_ENABLE_FILE_TIMER": ""}},
		{
			name: "another value", env: vars{"TORCHELASTIC_ENABLE_FILE_TIMER": "true"},
			warnings: []string{"TORCHELASTIC_ENABLE_FILE_TIMER=true: only 1 turns the file timer on, as with torchrun"},
		},
		{name: "health", env: vars{"TORCHELASTIC_HEALTH_CHECK_PORT": "8080"}, want: TorchAgent{HealthPort: new(8080)}},
		{name: "any port", env: vars{"TORCHELASTIC_HEALTH_CHECK_PORT": " 0"}, want: TorchAgent{HealthPort: new(0)}},
		{name: "no port", env: vars{"TORCHELASTIC_HEALTH_CHECK_PORT": ""}},
		{
			name: "a large port", env: vars{"TORCHELASTIC_HEALTH_CHECK_PORT": "65536"},
			warnings: []string{"TORCHELASTIC_HEALTH_CHECK_PORT=65536: not a port between 0 and 65535, so health checks are not answered"},
		},
		{
			name: "uninterruptible", env: vars{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": " 1.5 "},
			want: TorchAgent{UninterruptibleTimeout: 1500 * time.Millisecond},
		},
		{name: "never", env: vars{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "inf"}},
		{name: "zero", env: vars{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0"}},
		{name: "below zero", env: vars{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "-1"}},
		{
			name: "no number", env: vars{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "1m"},
			warnings: []string{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=1m: not a number of seconds, so workers may sleep in the kernel for any time"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := resolved(t, surroundings{env: tt.env.lookup})
			if diff := cmp.Diff(tt.want, c.TorchAgent); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.warnings, c.Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}
