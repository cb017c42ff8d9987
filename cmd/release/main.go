// Command release makes the files of a release in dist, from the source in the working directory: see internal/release.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/release"
)

func main() {
	out := flag.String("out", "dist", "the folder to write to")
	version := flag.String("version", "dev", "what git describe --tags --always --dirty says")
	man := flag.Bool("man", false, "make the manual pages alone")
	host := flag.Bool("host", false, "for this machine's platform alone")
	flag.Parse()
	if err := run(*out, *version, *man, *host); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(out, version string, man, host bool) error {
	date, err := sourceDate()
	if err != nil {
		return err
	}
	o := release.Options{Root: ".", Out: out, Version: version, Date: date, Targets: release.Targets(), Progress: os.Stdout}
	if host {
		o.Targets = []release.Target{release.Host()}
	}
	if man {
		return release.Man(o)
	}
	return release.Run(context.Background(), o)
}

// sourceDate is SOURCE_DATE_EPOCH, in seconds since 1970, or else the date of the commit.
func sourceDate() (time.Time, error) {
	text, set := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !set {
		said, err := exec.CommandContext(context.Background(), "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the date of the commit (or set SOURCE_DATE_EPOCH): %w", err)
		}
		text = strings.TrimSpace(string(said))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: must be a number of seconds since 1970", text)
	}
	return time.Unix(seconds, 0), nil
}
