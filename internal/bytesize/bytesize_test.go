package bytesize

import (
	"math"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, " 12 ": 12, "1KiB": 1 << 10, "3 MiB": 3 << 20, "007GiB": 7 << 30, "1TiB": 1 << 40,
		"8191TiB": 8191 << 40, "8388608TiB": math.MaxInt64, "9223372036854775808": math.MaxInt64, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "+1", "1.5GiB", "1G", "1GB", "1gib", "1iB", "1B", "1KiBKiB", "0x10", "1e9", "1 000", "1 KiB KiB", "٣"} {
		if n, err := Parse(text); err == nil {
			t.Errorf("%q: %d, want an error", text, n)
		}
	}
}

func TestFormat(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1<<30 - 1: "1023 MiB", 3 << 29: "1.5 GiB", 10 << 20: "10 MiB",
		10<<20 - 1: "9.9 MiB", 512 << 30: "512 GiB", 1<<63 + 1: "8.0 EiB", math.MaxUint64: "15 EiB",
	} {
		if got := Format(n); got != want {
			t.Errorf("Format(%d) = %q, want %q", n, got, want)
		}
	}
}
