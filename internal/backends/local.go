package backends

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/userdir"
)

// LocalSocket returns the path of the Unix socket through which the agents of a job on this machine find each other
// with --rdzv-endpoint=local, and "" for other endpoints. Its folder need not exist. The error is a *config.UsageError.
func LocalSocket(cfg *config.Config) (string, error) { return localSocket(cfg, false) }

// localSocket is LocalSocket, and makes the socket's folder if makes is set.
func localSocket(cfg *config.Config, makes bool) (string, error) {
	if !cfg.Rendezvous.Local {
		return "", nil
	}
	dir := userdir.Find(os.LookupEnv)
	ready := dir.Check
	if makes {
		ready = dir.Make
	}
	err := ready()
	var socket string
	if err == nil {
		socket, err = dir.Socket(socketName(cfg.RunID))
	}
	if err != nil {
		where := cfg.Where("rdzv-endpoint")
		if dir.Source != "" {
			where = dir.Source
		}
		return "", &config.UsageError{Where: where, Problem: err.Error()}
	}
	return socket, nil
}

// socketName returns the name of a run's socket, which is short whatever the run id. The name differs between machines
// that share the folder by a network file system. It also differs between network namespaces, such as containers: the
// agents could connect there, but their workers could not.
func socketName(runID string) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // only Linux has it
	machine := strings.TrimSpace(string(boot))
	if machine == "" {
		machine, _ = os.Hostname()
	}
	network, _ := os.Readlink("/proc/self/ns/net") // without /proc, all networks count as one
	sum := sha256.Sum256([]byte(machine + "\n" + network + "\n" + runID))
	return "run-" + hex.EncodeToString(sum[:8])
}
