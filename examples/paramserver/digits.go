package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

const (
	pixels         = 64
	classes        = 10
	darkest        = 16   // the largest value of a pixel
	trainingImages = 1400 // the first images of the file; the others are for the test
	inputs         = pixels + 1
)

// digits are the handwritten digits of testdata/digits.
type digits struct {
	training, test shard
}

// shard is a set of labeled images.
type shard struct {
	images [][]float64 // inputs values each: pixels from 0 to 1, and a constant 1 whose weight is the bias
	labels []int       // 0 to 9
}

// share returns every n-th image from image first on.
func (s shard) share(first, n int) shard {
	var mine shard
	for i := first; i < len(s.images); i += n {
		mine.images = append(mine.images, s.images[i])
		mine.labels = append(mine.labels, s.labels[i])
	}
	return mine
}

// loadDigits reads a gzipped CSV file. Its errors contain the path.
func loadDigits(path string) (digits, error) {
	file, err := os.Open(path)
	if err != nil {
		return digits{}, err
	}
	defer file.Close()
	text, err := unzip(file)
	if err != nil {
		return digits{}, fmt.Errorf("%s: damaged: %w", path, err)
	}
	all, err := parseImages(text)
	if err != nil {
		return digits{}, fmt.Errorf("%s: %w", path, err)
	}
	const cut = trainingImages
	if len(all.images) <= cut {
		return digits{}, fmt.Errorf("%s: %d images, want more than %d", path, len(all.images), cut)
	}
	return digits{
		training: shard{all.images[:cut], all.labels[:cut]},
		test:     shard{all.images[cut:], all.labels[cut:]},
	}, nil
}

func unzip(r io.Reader) (string, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
}

// parseImages reads one image per line: its pixels, 0 to 16, and its label, separated by commas.
func parseImages(text string) (shard, error) {
	var all shard
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Split(strings.TrimRight(line, "\r\n"), ",")
		if len(fields) != pixels+1 {
			return shard{}, fmt.Errorf("line %d has %d columns, want %d pixels and a digit", number, len(fields), pixels)
		}
		image := make([]float64, inputs)
		for i, field := range fields[:pixels] {
			darkness, err := strconv.Atoi(field)
			if err != nil || darkness < 0 || darkness > darkest {
				return shard{}, fmt.Errorf("line %d: pixel %d is %q, want a number from 0 to %d", number, i+1, field, darkest)
			}
			image[i] = float64(darkness) / darkest
		}
		image[pixels] = 1
		label, err := strconv.Atoi(fields[pixels])
		if err != nil || label < 0 || label >= classes {
			return shard{}, fmt.Errorf("line %d: the label is %q, want a digit", number, fields[pixels])
		}
		all.images, all.labels = append(all.images, image), append(all.labels, label)
	}
	return all, nil
}
