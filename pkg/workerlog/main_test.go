package workerlog

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary a worker that produces lines.
const helperEnv = "WORKERLOG_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "produce" {
		produce(os.Args[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// produce writes lines to stdout. Its arguments: the total bytes, the bytes of one
// line, the bytes of one write, and a letter that starts every line, followed by
// its number.
func produce(args []string) {
	total, _ := strconv.Atoi(args[0])
	line, _ := strconv.Atoi(args[1])
	write, _ := strconv.Atoi(args[2])
	var buf []byte
	for i := 0; i < total/line; i++ {
		buf = append(buf, producedLine(args[3], i, line)...)
		if len(buf) >= write || i == total/line-1 {
			if _, err := os.Stdout.Write(buf); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			buf = buf[:0]
		}
	}
}

// producedLine is line number i of a producer, size bytes with its end.
func producedLine(letter string, i, size int) []byte {
	text := fmt.Appendf(make([]byte, 0, size), "%s%09d ", letter, i)
	text = append(text, bytes.Repeat([]byte{'.'}, size-1-len(text))...)
	return append(text, '\n')
}
