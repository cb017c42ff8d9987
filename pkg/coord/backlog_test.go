package coord

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// slowKeeper is a sharedKeeper whose writes each wait until the test lets them go on. It counts their bytes.
type slowKeeper struct {
	*sharedKeeper
	release chan struct{}
	largest int // only the keeper's caller uses it
}

func (k *slowKeeper) Write(edits []Edit) error {
	<-k.release
	size := 0
	for _, e := range edits {
		size += len(e.Key) + len(e.Value)
	}
	k.largest = max(k.largest, size)
	return k.sharedKeeper.Write(edits)
}

// TestSharedBacklog lets many commits wait for a slow keeper. The keeper gets them in writes of a few MiB each.
func TestSharedBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{})
		k := &slowKeeper{sharedKeeper: newSharedKeeper(), release: make(chan struct{})}
		defer k.answerAll()()
		s.keepJournal(k)
		way := &pipeNetwork{server: s}
		var stores []Store
		pass := make(chan struct{})
		go func() { // the sessions' writes
			for {
				select {
				case k.release <- struct{}{}:
				case <-pass:
					return
				}
			}
		}()
		for range 8 {
			c, err := Dial(t.Context(), DialOptions{Addr: "pipe", Conn: way.dial})
			if err != nil {
				t.Fatal(err)
			}
			l := openLocal(t, s)
			stores = append(stores, c, l)
		}
		close(pass)
		synctest.Wait()
		var waiting sync.WaitGroup
		for i, store := range stores {
			op := Op{Key: fmt.Sprint(i), Value: bytes.Repeat([]byte{1}, MaxCommit-8)}
			waiting.Go(func() {
				if _, err := store.Commit(t.Context(), nil, []Op{op}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(k.release)
		waiting.Wait()
		if k.largest > 6<<20 {
			t.Errorf("a write of %d bytes", k.largest)
		}
		for _, store := range stores {
			closeStore(t, store)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
