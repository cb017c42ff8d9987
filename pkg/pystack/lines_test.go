package pystack

import "testing"

// TestLineAt has tables made by hand.
func TestLineAt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		format lineFormat
		table  []byte
		first  int
		want   map[int]int // by offset
	}{
		{name: "no lnotab", format: lnotab, first: 7, want: map[int]int{-1: 7, 0: 7, 1000: 7}},
		{
			name: "lnotab", format: lnotab, first: 10,
			table: []byte{0, 1, 4, 2, 255, 0, 1, 127, 0, 100, 2, 0xfe},
			want:  map[int]int{-1: 10, 0: 11, 2: 11, 4: 13, 6: 13, 258: 13, 260: 240, 262: 238, 5000: 238},
		},
		{name: "half a pair", format: lnotab, first: 1, table: []byte{0, 1, 0}, want: map[int]int{0: 2}},
		{
			name: "ranges", format: lineRanges, first: 10,
			table: []byte{4, 1, 2, 0x80, 2, 0xff, 0, 100, 254, 1},
			want:  map[int]int{-1: 10, 0: 11, 2: 11, 4: 0, 6: 10, 8: 111, 260: 111, 262: 0},
		},
		{
			name: "locations", format: locations, first: 10,
			table: []byte{
				0x80 | 0<<3 | 1, 0x12, // short: two instructions, the same line
				0x80 | 11<<3, 1, 2, // one line: the next line
				0x80 | 15<<3 | 7,        // none: eight instructions
				0x80 | 13<<3, 0x45, 0x7, // no columns: 453 is line -226
				0x80 | 14<<3, 0x46, 0x7, 2, 1, 1, // long: 454 is line +227
			},
			want: map[int]int{-2: 10, 0: 10, 2: 10, 4: 11, 6: 0, 20: 0, 22: -215, 24: 12, 26: 0},
		},
		{name: "locations cut", format: locations, first: 3, table: []byte{0x80 | 14<<3}, want: map[int]int{0: 3, 2: 0}},
		{
			name: "a number without end", format: locations, first: 3,
			table: []byte{0x80 | 13<<3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f}, want: map[int]int{2: 0},
		},
		{name: "an unknown form", format: 99, first: 3, table: []byte{1, 1}, want: map[int]int{0: 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for offset, want := range tc.want {
				if got := lineAt(tc.format, tc.table, tc.first, offset); got != want {
					t.Errorf("line at %d is %d, want %d", offset, got, want)
				}
			}
		})
	}
}

// FuzzLineAt gives bytes as tables.
func FuzzLineAt(f *testing.F) {
	f.Add(uint8(0), []byte{0, 1, 4, 2, 255, 0}, 10)
	f.Add(uint8(1), []byte{4, 1, 2, 0x80}, 2)
	f.Add(uint8(2), []byte{0xf7, 0x45, 0x7}, 2)
	f.Fuzz(func(_ *testing.T, format uint8, table []byte, offset int) {
		lineAt(lineFormat(format%3), table, 1, offset)
	})
}
