package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// confOption is one option that --rdzv-conf may hold.
type confOption struct {
	name    string
	backend string
	check   func(string) error
	help    string
}

// confOptions lists the options of the backends that torchrun and elasticrun
// share. Other backends check their own.
func confOptions() []confOption {
	const c10d, static = rdzv.BackendC10d, rdzv.BackendStatic
	return []confOption{
		{"join_timeout", c10d, positive, "seconds a node waits for a round to be decided (600)"},
		{"last_call_timeout", c10d, positive, "seconds a round stays open once the minimum is in (30)"},
		{"close_timeout", c10d, positive, "seconds for closing the rendezvous (30)"},
		{"heartbeat_timeout", c10d, positive, "seconds one keep-alive may take (5)"},
		{"keep_alive_interval", c10d, positive, "seconds between keep-alives (5)"},
		{"keep_alive_max_attempt", c10d, positive, "missed keep-alives after which a node is lost (3)"},
		{"read_timeout", c10d, positive, "seconds for one answer of the store (60)"},
		{"store_type", c10d, func(s string) error { _, err := oneOf("tcp", "file")(s); return err }, "tcp or file"},
		{"is_host", c10d, truth, "whether this node hosts the store (found out)"},
		{"timeout", static, positive, "seconds for store operations (900)"},
	}
}

func positive(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 1 {
		return errors.New("must be a whole number, at least 1")
	}
	return nil
}

func truth(s string) error {
	if !slices.Contains([]string{"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"}, strings.ToLower(s)) {
		return errors.New("must be true or false")
	}
	return nil
}

// parseConf reads key=value,key=value by torchrun's rules.
func parseConf(s string) (map[string]string, error) {
	conf := map[string]string{}
	if strings.TrimSpace(s) == "" {
		return conf, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case key == "":
			return nil, fmt.Errorf("%q has no key: write KEY=VALUE,KEY=VALUE", item)
		case value == "":
			return nil, fmt.Errorf("%s has no value: write %s=VALUE", key, key)
		}
		conf[key] = value
	}
	return conf, nil
}

// checkConf refuses unknown options and bad values. It returns a warning for
// each option that has no effect with this backend, such as torchrun's timeout
// with c10d.
func checkConf(backend string, conf map[string]string) (warnings []string, err error) {
	if backend != rdzv.BackendC10d && backend != rdzv.BackendStatic {
		return nil, nil
	}
	options := confOptions()
	var names []string
	for _, o := range options {
		names = append(names, o.name)
	}
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		i := slices.Index(names, key)
		switch {
		case key == "rank":
			return nil, errors.New("rank is set by --node-rank")
		case i < 0:
			return nil, fmt.Errorf("unknown option %s: there are %s", shown(key), strings.Join(names, ", "))
		}
		if err := options[i].check(conf[key]); err != nil {
			return nil, fmt.Errorf("%s=%s %w", key, shown(conf[key]), err)
		}
		if options[i].backend != backend {
			warnings = append(warnings, fmt.Sprintf("%s has no effect with the %s backend", key, backend))
		}
	}
	return warnings, nil
}
