package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestWebhookExample runs examples/notify/webhook.py, which posts that the job has ended.
func TestWebhookExample(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- r.URL.Path + " " + string(body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	script, err := filepath.Abs("../../examples/notify/webhook.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), testenv.Binary(t), "--rdzv-id=job8", "--notify-cmd=python3 "+script, "--no-python", "true")
	cmd.Env = append(os.Environ(), "WEBHOOK_URL="+server.URL+"/hook", "no_proxy=127.0.0.1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	select {
	case got := <-bodies:
		want := regexp.MustCompile(`^/hook {"text": "true \(job8\) ended: success, exit code 0, 0 restarts, \d+% running"}$`)
		if !want.MatchString(got) {
			t.Errorf("%s, want %s", got, want)
		}
	case <-time.After(time.Second):
		t.Error("nothing was posted")
	}
}
