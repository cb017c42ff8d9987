package lookpath

import "testing"

// Without PATH, Program searches the C library's default path, in which every system has sh.
func TestProgramWithoutPath(t *testing.T) {
	got, err := Program(func(string) (string, bool) { return "", false }, "sh")
	if err != nil || got != "/bin/sh" {
		t.Errorf("Program(sh) = %q, %v", got, err)
	}
}
