package config

import (
	"math"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
)

// Store is the resolved configuration of elasticrun store.
type Store struct {
	// Listen is where the store listens.
	Listen HostPort `flag:"listen"`
	// Health is where the store serves its health over HTTP; nil for nowhere.
	Health *HostPort `flag:"health"`
	// DataDir is the folder that keeps the agents' data across restarts of the store; empty for memory only. It need
	// not exist.
	DataDir string `flag:"data-dir"`
	// Secret is what agents must know; empty for none.
	Secret Secret
	// StoreUsers are further users, besides this one and root, whom the store serves if only this machine can reach it.
	StoreUsers StoreUsers `flag:"store-users"`
	// Certificates are the site's; the zero value is none.
	Certificates certfiles.Files
	// MaxConns limits the connections that are served at a time; 0 is no limit.
	MaxConns int `flag:"max-conns"`
	// MaxMemory limits the memory of the store in bytes, at least 1 MiB.
	MaxMemory int64 `flag:"max-memory"`
	// StallTimeout limits the time for each 64 KiB of a request; above 0.
	StallTimeout time.Duration `flag:"stall-timeout"`
	// Grace is how long requests in progress may take to finish when the store stops; 0 closes them at once.
	Grace time.Duration `flag:"grace"`
	// LogFormat is auto, console or json.
	LogFormat string `flag:"log-format"`
	// LogLevel is the lowest level that is logged.
	LogLevel zerolog.Level `flag:"log-level"`
	// Warnings are one line each; the store logs them before it serves.
	Warnings []string
}

// storeFlags returns the table of elasticrun store.
func storeFlags() []Flag {
	return commandFlags("store",
		Flag{
			Name: "listen", Kind: KindString, Default: "127.0.0.1:29400", Placeholder: "HOST:PORT", parse: as(parseListen),
			Help: "Where the store listens. :29400 means every address of this machine, for jobs on other machines. " +
				"Port 0 takes a free port.",
		},
		Flag{
			Name: "health", Kind: KindString, Placeholder: "HOST:PORT", parse: as(parseListen),
			Help: "Serve HTTP there: GET /healthz says whether the store answers, and returns its counters. Default: " +
				"not served.",
		},
		Flag{
			Name: "data-dir", Kind: KindString, Placeholder: "DIR",
			Help: "Keep the agents' data in this folder, so that jobs survive a restart of the store. Workers' keys are " +
				"always in memory. Default: in memory.",
		},
		Flag{
			Name: "max-conns", Kind: KindInt, Default: "0", Placeholder: "N", parse: as(between(0, math.MaxInt32)),
			Help: "Limit on connections. Beyond it, the store closes the oldest connection that has never sent " +
				"anything, or else the new one. A worker of torch 1.13 needs two, of torch 2.x one. 0 means as many " +
				"as files may be open.",
		},
		Flag{
			Name: "max-memory", Kind: KindSpec, Default: "2GiB", Placeholder: "SIZE",
			parse: as(sizeFrom(minStoreMemory, "1MiB")),
			Help: "Approximate memory limit, such as 512MiB: three quarters for workers, a fifth for agents, the rest " +
				"to lead their runs. Half of each share is for stored data, half for requests and replies in " +
				"progress.",
		},
		Flag{
			Name: "stall-timeout", Kind: KindSeconds, Default: "30", Placeholder: "SECONDS", parse: as(aboveZero),
			Help: "How long a client may take for each 64 KiB of a request. Between requests a client may be silent " +
				"without limit.",
		},
		Flag{
			Name: "grace", Kind: KindSeconds, Default: "10", Placeholder: "SECONDS", parse: as(parseSeconds),
			Help: "How long requests in progress may take to finish when the store is told to stop.",
		},
		Flag{
			Name: "ssl-cert", Kind: KindString, Placeholder: "FILE",
			Help: "File with the store's certificate, for the name by which agents know the store. It is read again when it " +
				"changes. Default: one that is made in memory.",
		},
		Flag{Name: "ssl-cert-key", Kind: KindString, Placeholder: "FILE", Help: "File with the key of --ssl-cert."},
		Flag{
			Name: "ca-cert", Kind: KindString, Placeholder: "FILE",
			Help: "File with certificate authorities: only agents with a certificate of one of them are served. It is read " +
				"again when it changes. Default: agents need no certificate.",
		},
		inherit("rdzv-secret-file"),
		inherit("require-auth", withHelp("Refuse to start without a secret, or --ca-cert with --ssl-cert, where other "+
			"machines can reach the store.")),
		inherit("store-users"), inherit("log-format"), inherit("log-level"), inherit("help"),
	)
}

// LoadStore resolves the arguments of elasticrun store, together with the environment variables of the log and the
// secret. Its errors are ErrHelp and *UsageError.
func LoadStore(args []string) (*Store, error) {
	r, err := readFlagsOnly("store", storeFlags(), args)
	if err != nil {
		return nil, err
	}
	c := &Store{}
	r.decode(c)
	c.Secret, _ = agentsSecret(r, surroundings{env: os.LookupEnv, secret: readSecret})
	c.Certificates = storeCertificates(r)
	open := c.Secret.Reveal() == "" && !c.Certificates.Mutual() && !c.StoreUsers.checkedAt(c.Listen)
	if r.isOn("require-auth") && open {
		why, remedy := flagNames.lacking(c.Certificates)
		r.fail("require-auth", why+": "+remedy)
	}
	if c.Health != nil && *c.Health == c.Listen && c.Health.Port != 0 {
		r.fail("health", "the store listens there; choose another port")
	}
	if r.given("data-dir") && c.DataDir == "" {
		r.fail("data-dir", "must not be empty")
	}
	c.Warnings = r.warnings
	return c, r.err
}

// storeCommand describes elasticrun store.
func storeCommand() Subcommand {
	return Subcommand{
		Name: "store", Short: "run a store outside of a job", Args: "[flags]", flags: storeFlags,
		Intro: `Run a store (torch's TCPStore) outside of a job. It also hosts the rendezvous of jobs whose
--rdzv-endpoint it is.
`,
		Outro: `When the store listens it prints one line on stdout: "store listening on HOST:PORT", followed by
"health on URL" with --health. SIGTERM and SIGINT stop it cleanly with exit code 0; a second signal,
at least a second later, stops it at once. Workers' keys are in memory and are lost when it stops.
`,
	}
}
