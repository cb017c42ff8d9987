package group

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestAdmit(t *testing.T) {
	var r reading
	admit := func(kind frameKind, size int, want bool) (done func()) {
		t.Helper()
		done, ok := r.admit(kind, size)
		if ok != want {
			t.Errorf("kind %d, %d bytes: admitted %v, want %v", kind, size, ok, want)
		}
		return done
	}
	admit(frameAnnounce, maxHello, true)
	admit(frameAnnounce, maxHello+1, false)
	admit(frameRaft, maxFrame+1, false)
	var large []func()
	for range maxLarge {
		large = append(large, admit(frameRaft, maxMessage, true))
	}
	admit(frameRaft, maxSmall+1, false)
	admit(frameRaft, maxSmall, true)
	snapshot := admit(frameRaft, maxFrame, true)
	admit(frameRaft, maxMessage+1, false)
	large[0]()
	snapshot()
	admit(frameRaft, maxSmall+1, true)
	admit(frameRaft, maxMessage+1, true)
}

// TestFramesMustKeepComing checks that a reader waits for a frame without limit, but not for the rest of a frame.
func TestFramesMustKeepComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		var r reading
		result := make(chan error, 1)
		go func() {
			_, err := r.next(here)
			result <- err
		}()
		<-time.After(time.Hour)
		whole := frame{kind: frameRaft, message: make([]byte, 2*maxSmall)}.encode()
		if _, err := there.Write(whole[:maxSmall+100]); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-result:
			t.Fatalf("the frame is not complete: %v", err)
		case <-time.After(sendTimeout):
		}
		if err := <-result; !errors.Is(err, io.ErrUnexpectedEOF) && !isTimeout(err) {
			t.Errorf("the rest does not come: %v", err)
		}
		if n := r.messages.Load(); n != 0 {
			t.Errorf("%d large frames are still being read", n)
		}
	})
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
