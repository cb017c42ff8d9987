// Command release builds the files of a release from the source in the working directory. See package internal/release.
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
	out := flag.String("out", "dist", "folder for the output")
	version := flag.String("version", "dev", "output of git describe --tags --always --dirty")
	man := flag.Bool("man", false, "only build the manual pages")
	host := flag.Bool("host", false, "only build for this machine's platform")
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
	o := release.Options{
		Root:     ".",
		Out:      out,
		Version:  version,
		Date:     date,
		Targets:  release.Targets(),
		Progress: os.Stdout,
	}
	if host {
		o.Targets = []release.Target{release.Host()}
	}
	if man {
		return release.Man(o)
	}
	return release.Run(context.Background(), o)
}

// sourceDate returns SOURCE_DATE_EPOCH, in seconds since 1970, or the date of the commit if the variable is not set.
func sourceDate() (time.Time, error) {
	text, set := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !set {
		out, err := exec.CommandContext(context.Background(), "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the date of the commit (or set SOURCE_DATE_EPOCH): %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: must be a number of seconds since 1970", text)
	}
	return time.Unix(seconds, 0), nil
}
