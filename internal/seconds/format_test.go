package seconds

import (
	"math"
	"testing"
	"time"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{400 * time.Nanosecond, "0s"},
		{120 * time.Microsecond, "120µs"},
		{28*time.Millisecond + 400*time.Microsecond, "28ms"},
		{999*time.Millisecond + 600*time.Microsecond, "1s"},
		{1500 * time.Millisecond, "1.5s"},
		{3 * time.Second, "3s"},
		{42*time.Second + 310*time.Millisecond, "42.3s"},
		{59*time.Second + 949*time.Millisecond, "59.9s"},
		{59*time.Second + 960*time.Millisecond, "1m"},
		{65 * time.Second, "1m05s"},
		{3*time.Minute + 12*time.Second + 345*time.Millisecond, "3m12s"},
		{10 * time.Minute, "10m"},
		{time.Hour - 400*time.Millisecond, "1h"},
		{5*time.Hour + 7*time.Minute, "5h07m"},
		{24*time.Hour - 20*time.Second, "1d"},
		{52 * time.Hour, "2d04h"},
		{31 * 24 * time.Hour, "31d"},
		{-1500 * time.Millisecond, "-1.5s"},
		{math.MinInt64, "-106751d23h"},
	} {
		if got := Format(tt.d); got != tt.want {
			t.Errorf("Format(%v) = %q, want %q", tt.d, got, tt.want)
		}
	}
}
