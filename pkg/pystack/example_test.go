//go:build linux

package pystack_test

import (
	"bufio"
	"fmt"
	"os/exec"

	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// Start a Python program and look at where it waits.
func Example() {
	worker := exec.Command("/usr/bin/python3", "-c", `
import sys

class Trainer:
    def step(self):
        print("ready", flush=True), sys.stdin.read()

Trainer().step()
`)
	stdin, err := worker.StdinPipe()
	if err != nil {
		panic(err)
	}
	stdout, err := worker.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := worker.Start(); err != nil {
		panic(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		panic(err)
	}

	process, err := pystack.Open(worker.Process.Pid)
	if err != nil {
		panic(err)
	}
	threads, err := process.Threads()
	if err != nil {
		panic(err)
	}
	for _, thread := range threads {
		fmt.Println("main:", thread.Main)
		for _, frame := range thread.Frames {
			fmt.Printf("%s:%d in %s\n", frame.File, frame.Line, frame.Function)
		}
	}

	stdin.Close()
	if err := worker.Wait(); err != nil {
		panic(err)
	}
	// Output:
	// main: true
	// <string>:6 in Trainer.step
	// <string>:8 in <module>
}
