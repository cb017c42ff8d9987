package siginfo

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestFrom(t *testing.T) {
	const nobodys = 1 << 30 // a uid without a name
	me := os.Getpid()
	for _, tt := range []struct {
		name       string
		origin     Origin
		sig        syscall.Signal
		procIsOurs bool
		want       string // %s stands for ", uid 1073741824"
		sender     bool
	}{
		{"nothing is known", Origin{}, syscall.SIGTERM, true, "", false},
		{"a key", Origin{Kernel: 1}, syscall.SIGINT, true, "from the terminal", false},
		{"a limit", Origin{Kernel: 1}, syscall.SIGXCPU, true, "from the kernel", false},
		{"outside", Origin{Sent: 1, UID: nobodys}, syscall.SIGTERM, true, "from a process outside this container%s", true},
		{"a key and a sender", Origin{Kernel: 1, Sent: 1, UID: nobodys}, syscall.SIGINT, true, "from a process outside this container%s", true},
		{"no such process", Origin{Sent: 2, PID: nobodys, UID: nobodys}, syscall.SIGTERM, true, "from pid 1073741824, which has ended%s", true},
		{"passed on from the kernel", Origin{Sent: 1, Passed: true}, syscall.SIGINT, true, "from the terminal", false},
		{"a timer", Origin{Sent: 1, Unnamed: true}, syscall.SIGINT, true, "", false},
		{"of another /proc", Origin{Sent: 1, PID: me, UID: nobodys}, syscall.SIGTERM, false, "from pid " + strconv.Itoa(me) + "%s", true},
	} {
		text, sender := tt.origin.From(tt.sig, tt.procIsOurs)
		if text != strings.ReplaceAll(tt.want, "%s", ", uid 1073741824") || (sender != nil) != tt.sender {
			t.Errorf("%s: %q, sender %+v", tt.name, text, sender)
		}
	}
	_, sender := Origin{Sent: 1, PID: me}.From(syscall.SIGTERM, true)
	if sender == nil || !strings.Contains(sender.Command, "siginfo.test") || sender.User != "root" {
		t.Errorf("this process: %+v", sender)
	}
}
