package httpserver

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestPlaces keeps one handler busy and opens many connections that send no request, a part of one, or not all of its
// body. Other requests are answered all the same, and the handler's connection stays open. When every connection has a
// handler, a new connection is closed.
func TestPlaces(t *testing.T) {
	const most = 4
	begun, finish := make(chan struct{}, most), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-finish
		Reply(w, http.StatusOK, "text/plain", []byte("slow"))
	})
	mux.HandleFunc("/fast", func(w http.ResponseWriter, _ *http.Request) {
		Reply(w, http.StatusOK, "text/plain", []byte("fast"))
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(ln, Options{
		Handler: mux, Name: "test", ReadTimeout: time.Minute, WriteTimeout: time.Minute, MaxConns: most,
		Logger: zerolog.New(t.Output()),
	})
	defer s.Close()
	send := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(c, text)
		return c
	}
	request := func(path string) net.Conn {
		t.Helper()
		return send("GET " + path + " HTTP/1.0\r\n\r\n")
	}
	want := func(c net.Conn, end string) {
		t.Helper()
		got, _ := io.ReadAll(c)
		if n := len(got) - len(end); n < 0 || string(got[n:]) != end || end == "" && n > 0 {
			t.Errorf("got %q, want the end %q", got, end)
		}
	}
	slow := []net.Conn{request("/slow")}
	<-begun
	var silent []net.Conn
	for _, text := range []string{
		"", "G", "GET /fast HTTP/1.0\r\nX: ", "GET /fast HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
		"GET /fast HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", "",
	} {
		silent = append(silent, send(text))
		want(request("/fast"), "fast")
	}
	want(silent[0], "")
	for range most - 1 {
		slow = append(slow, request("/slow"))
		<-begun
	}
	want(silent[5], "")
	want(send(""), "")
	close(finish)
	for _, c := range slow {
		want(c, "slow")
	}
	want(request("/fast"), "fast")
}
