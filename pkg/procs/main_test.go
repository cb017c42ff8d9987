package procs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary a worker: its value names one of the helpers.
const helperEnv = "PROCS_TEST_HELPER"

// helpers are the workers that tests start; each gets the program's arguments.
var helpers = map[string]func(args []string){
	"produce": produce,
	"guarded": runGuarded,
	"trace":   trace,
}

func TestMain(m *testing.M) {
	if helper, ok := helpers[os.Getenv(helperEnv)]; ok {
		helper(os.Args[1:])
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
