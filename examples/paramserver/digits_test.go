package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// line returns an image in the format of the file: a number of pixels of the same darkness, and a label.
func line(pixels int, darkness, label string) string {
	return strings.Repeat(darkness+",", pixels) + label + "\n"
}

func zip(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLoadDigits(t *testing.T) {
	t.Parallel()
	d := testDigits(t)
	got := []int{len(d.training.images), len(d.training.labels), len(d.test.images), len(d.test.labels)}
	if want := []int{1400, 1400, 397, 397}; !slices.Equal(got, want) {
		t.Errorf("labels %v, want %v", got, want)
	}
}

func TestLoadDigitsRefuses(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(digitsFile)
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)-5] ^= 1 // in the checksum
	good := line(64, "16", "9")
	for _, tc := range []struct {
		name string
		file []byte
		want string
	}{
		{"no gzip file", []byte(good), "damaged: gzip: invalid header"},
		{"empty", nil, "damaged: EOF"},
		{"cut", whole[:len(whole)/2], "damaged: unexpected EOF"},
		{"another bit", flipped, "damaged: gzip: invalid checksum"},
		{"a column less", zip(t, good+line(63, "0", "1")), "line 2 has 64 columns, want 64 pixels and a digit"},
		{"a column more", zip(t, line(65, "0", "1")), "line 1 has 66 columns, want 64 pixels and a digit"},
		{"an empty line", zip(t, good+"\n"), "line 2 has 1 columns, want 64 pixels and a digit"},
		{"too dark", zip(t, line(64, "17", "1")), `line 1: pixel 1 is "17", want a number from 0 to 16`},
		{"no number", zip(t, line(64, "x", "1")), `line 1: pixel 1 is "x", want a number from 0 to 16`},
		{"no digit", zip(t, line(64, "0", "10")), `line 1: the label is "10", want a digit`},
		{"no test image", zip(t, strings.Repeat(good, 1400)), "1400 images, want more than 1400"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "digits.csv.gz")
			writeFile(t, path, string(tc.file))
			_, err := loadDigits(path)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(path+": "+tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// The shares contain every image once, for any number of trainers.
func TestShare(t *testing.T) {
	t.Parallel()
	all := testDigits(t).training
	for _, n := range []int{1, 3, 1500} {
		count := make(map[*float64]int)
		for i := range n {
			mine := all.share(i, n)
			for j, image := range mine.images {
				count[&image[0]]++
				if mine.labels[j] != all.labels[i+j*n] {
					t.Fatalf("share %d of %d: image %d has a wrong label", i, n, j)
				}
			}
		}
		if len(count) != len(all.images) {
			t.Errorf("%d shares have %d images, want %d", n, len(count), len(all.images))
		}
	}
}

func FuzzParseImages(f *testing.F) {
	f.Add(line(64, "16", "9") + line(64, "0", "0"))
	f.Add(line(64, "-1", "9"))
	f.Add("\n,,\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseImages(text)
		if err != nil {
			return
		}
		if len(all.images) != len(all.labels) {
			t.Fatalf("%d images, %d labels", len(all.images), len(all.labels))
		}
		for i, image := range all.images {
			if len(image) != inputs || slices.Min(image) < 0 || slices.Max(image) > 1 || all.labels[i] < 0 ||
				all.labels[i] >= classes {
				t.Fatalf("accepted %v with label %d", image, all.labels[i])
			}
		}
	})
}
