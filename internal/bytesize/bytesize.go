// Package bytesize reads and prints numbers of bytes with binary units: 512MiB, 1.5 GiB. Its functions are pure.
package bytesize

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var errFormat = errors.New("must be a whole number of bytes, KiB, MiB, GiB or TiB, such as 512MiB")

// Parse reads a whole number of bytes, or a whole number with the unit KiB, MiB, GiB or TiB. White space around the
// number and around the unit is ignored. A number that does not fit an int64 becomes [math.MaxInt64].
func Parse(s string) (int64, error) {
	s = strings.TrimSpace(s)
	digits := strings.TrimRight(s, "KMGTiB ")
	shift, known := map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[strings.TrimSpace(s[len(digits):])]
	if !known || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, errFormat
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64>>shift { // of digits, only the range can be wrong
		return math.MaxInt64, nil
	}
	return n << shift, nil
}

// Format prints n in its largest unit with two to four digits, rounded down: 512 B, 1.5 GiB, 62 MiB.
func Format[N int64 | uint64](n N) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit, i := N(1), 0
	for n/unit >= 1024 {
		unit, i = unit*1024, i+1
	}
	if whole := n / unit; i == 0 || whole >= 10 {
		return fmt.Sprintf("%d %s", whole, units[i])
	}
	tenths := n / (unit / 1024) * 10 / 1024 // in this order nothing overflows
	return fmt.Sprintf("%d.%d %s", tenths/10, tenths%10, units[i])
}
