package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// policyFlags returns the flags that forbid a restart after certain failures.
func policyFlags() []Flag {
	return []Flag{
		{
			Name: "final-codes", Kind: KindString, Placeholder: "CODES", Group: groupLife, parse: as(rdzv.ParseExitCodes),
			Help: "Exit codes of the root cause that end the job without a restart, such as 3,10-12. Signal n is 128+n.",
		},
		{
			Name: "exclude-node-codes", Kind: KindString, Placeholder: "CODES", Group: groupLife, parse: as(rdzv.ParseExitCodes),
			Help: "Exit codes of the root cause that say that its node is at fault: it is excluded, as long as the job can " +
				"run without it. The restart is charged.",
		},
		{
			Name: "max-same-failures", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupLife,
			parse: as(parseMaxSame),
			Help: "End the job once the same failure of the same rank has happened N times in a row, without progress in " +
				"between. 0 only reports it.",
		},
		{
			Name: "max-restarts-without-progress", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupLife,
			parse: as(between(0, maxRestarts)),
			Help: "End the job once N restarts in a row have failed at a step that is not beyond that of the failure before. " +
				"Steps come from --step-pattern or a heartbeat; failures without one do not count. 0 never ends it.",
		},
	}
}

// parseNotBlank refuses a value of blanks alone. An empty value counts as not given.
func parseNotBlank(s string) (string, error) {
	if s != "" && strings.TrimSpace(s) == "" {
		return "", errors.New("is blank")
	}
	return s, nil
}

func parseMaxSame(s string) (int, error) {
	n, err := between(0, maxRestarts)(s)
	if err == nil && n == 1 {
		err = errors.New("must be 0 or at least 2: one failure is not the same as another")
	}
	return n, err
}

// checkPolicy checks that the rules do not contradict each other, and that each can take effect.
func (c *Config) checkPolicy(r *reader) {
	for code := 1; code <= 255; code++ {
		if c.FinalCodes.Has(code) && c.ExcludeNodeCodes.Has(code) {
			r.fail("exclude-node-codes", fmt.Sprintf("has %d, and so has --final-codes, which ends the job", code))
			return
		}
	}
	if c.ExcludeNodeCodes != (rdzv.ExitCodes{}) && c.MaxNodes == 1 {
		r.warn("exclude-node-codes", "has no effect on a job of one node, which cannot run without it")
	}
	for _, rule := range []struct {
		name     string
		restarts int // that the rule needs
	}{{"max-restarts-without-progress", c.MaxIdleRestarts}, {"max-same-failures", c.MaxSameFailures - 1}} {
		if rule.restarts > c.MaxRestarts && c.Rendezvous.RestartWindow == 0 {
			r.warn(rule.name, fmt.Sprintf("has no effect with --max-restarts=%d: the job fails before", c.MaxRestarts))
		}
	}
}
