package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// parseConf reads KEY=VALUE,KEY=VALUE by torchrun's rules (torch 2.14 torch/distributed/elastic/rendezvous/utils.py).
// It also accepts one pair of quotes around the whole, which YAML files often leave in an argument.
func parseConf(s string) ([]rdzvconf.Item, error) {
	s = unquoted(strings.TrimSpace(s))
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var items []rdzvconf.Item
	behindPassword := false
	for text := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(text, "=")
		// What comes after a password may be a part of it.
		item := rdzvconf.Item{Key: strings.TrimSpace(key), Value: strings.TrimSpace(value), Unshown: behindPassword}
		switch {
		case behindPassword && (item.Key == "" || item.Value == ""):
			return nil, rdzvconf.ErrUnshown
		case item.Key == "":
			return nil, fmt.Errorf("%q has no key: write KEY=VALUE,KEY=VALUE", text)
		case item.Value == "":
			return nil, fmt.Errorf("%s has no value: write %s=VALUE", item.Key, item.Key)
		}
		items = append(items, item)
		behindPassword = behindPassword || rdzvconf.IsPassword(item.Key)
	}
	return items, nil
}

// unquoted removes the quotes around s, unless there are quotes of the same kind in between.
func unquoted(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s
	}
	if inner := s[1 : len(s)-1]; !strings.Contains(inner, s[:1]) {
		return inner
	}
	return s
}

// redactConf removes a password, and all text after it, from the text of --rdzv-conf.
func redactConf(s string) string {
	at := 0
	for text := range strings.SplitAfterSeq(s, ",") {
		if key, _, found := strings.Cut(text, "="); found && rdzvconf.IsPassword(key) {
			return s[:at+len(key)+1] + rdzvconf.Hidden
		}
		at += len(text)
	}
	return s
}

// readConf applies --rdzv-conf.
func (r *Rendezvous) readConf(settings *reader, items []rdzvconf.Item, from surroundings) {
	const name = "rdzv-conf"
	isHost := r.IsHost // what the scheduler says
	r.Settings = rdzvconf.Defaults(r.Backend)
	r.IsHost = isHost
	if !isKnown(r.Backend) {
		return
	}
	if slices.ContainsFunc(items, func(item rdzvconf.Item) bool { return item.Key == "rank" && !item.Unshown }) {
		settings.fail(name, "rank is set by --node-rank")
	}
	fromFlag := settings.settings[name].Source.Kind == FromFlag
	for _, item := range items {
		if problem := noSecretHere(r.Backend, item.Key, fromFlag); problem != "" && !item.Unshown {
			settings.fail(name, problem)
			return
		}
	}
	read, warnings, err := rdzvconf.Read(r.Backend, items, from.secret)
	if err != nil {
		settings.fail(name, err.Error())
		return
	}
	password := func(item rdzvconf.Item) bool { return item.Key == "password" }
	if fromFlag && slices.ContainsFunc(items, password) {
		settings.fail(name, "every user of this machine can read a command line: put the password into a file, "+
			"password_file=FILE, or the whole option into "+confEnv)
		return
	}
	r.Settings = read
	r.IsHost = cmp.Or(read.IsHost, isHost)
	for _, warning := range warnings {
		settings.warn(name, warning)
	}
}

// warnVoters warns if the option voters cannot have its effect: agents of one machine end together, so one of them
// keeps the store alone.
func (r *Rendezvous) warnVoters(settings *reader, items []rdzvconf.Item) {
	given := slices.ContainsFunc(items, func(item rdzvconf.Item) bool { return item.Key == "voters" })
	oneMachine := r.Local || len(r.Endpoints) == 1 && rdzvconf.OnlyHere(r.Endpoints[0].Host, r.IsHost)
	if given && r.Backend == rdzv.BackendC10d && r.Voters > 1 && oneMachine {
		settings.warn("rdzv-conf", fmt.Sprintf("voters=%d has no effect: the endpoint %s is for agents of one machine, and "+
			"one of them keeps the job's store", r.Voters, r.Endpoint))
	}
}

// noSecretHere says where a secret belongs that was given as this option; it is empty for other options. Only etcd has
// a password.
func noSecretHere(backend, key string, fromFlag bool) string {
	const secret = "the agents' secret comes from a file, --rdzv-secret-file=FILE, or from " + SecretEnv
	key = strings.ReplaceAll(strings.ToLower(key), "-", "_")
	isSecret := slices.Contains([]string{"secret", "secret_file", "rdzv_secret", "rdzv_secret_file", "token"}, key)
	switch {
	case isSecret && backend == rdzv.BackendEtcd:
		return "etcd knows users, not a secret: give user=USER,password_file=FILE"
	case isSecret:
		return secret
	case key == "password" && backend != rdzv.BackendEtcd && fromFlag:
		return "the " + backend + " backend has no password; " + secret
	}
	return ""
}
