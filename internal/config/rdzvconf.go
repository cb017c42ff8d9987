package config

import (
	"fmt"
	"strings"

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
