package rdzv

import (
	"fmt"
	"strconv"
	"strings"
)

// ExitCodes is a set of exit codes from 1 to 255, where signal n is 128+n. The zero value is empty. Sets may be
// compared with ==.
type ExitCodes [4]uint64

// ParseExitCodes reads codes and ranges, such as 3,10-12. An empty text is the empty set.
func ParseExitCodes(s string) (set ExitCodes, err error) {
	if strings.TrimSpace(s) == "" {
		return set, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || from < 1 || to > 255 || from > to {
			return ExitCodes{}, fmt.Errorf("has %q; it may have codes from 1 to 255 and ranges such as 10-12", part)
		}
		for code := from; code <= to; code++ {
			set[code/64] |= 1 << (code % 64)
		}
	}
	return set, nil
}

// Has reports whether the set has a code.
func (c ExitCodes) Has(code int) bool {
	return code >= 0 && code < 64*len(c) && c[code/64]&(1<<(code%64)) != 0
}

// String returns the set in the form that ParseExitCodes reads, in ascending order.
func (c ExitCodes) String() string {
	var parts []string
	for code := 1; code <= 255; code++ {
		first := code
		for c.Has(code) && c.Has(code+1) {
			code++
		}
		switch {
		case code > first:
			parts = append(parts, fmt.Sprintf("%d-%d", first, code))
		case c.Has(code):
			parts = append(parts, strconv.Itoa(code))
		}
	}
	return strings.Join(parts, ",")
}

// MarshalText implements [encoding.TextMarshaler].
func (c ExitCodes) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *ExitCodes) UnmarshalText(text []byte) (err error) {
	*c, err = ParseExitCodes(string(text))
	return err
}
