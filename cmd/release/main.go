// Command release makes the files of a release from the source in the working directory. See package internal/release.
//
//	release [flags] [KIND...]    makes the files of some kinds, or a whole release
//	release [flags] version      prints the version
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/elasticrun/elasticrun/internal/release"
)

func main() {
	out := flag.String("out", "dist", "folder for the output")
	version := flag.String("version", "", "the version, such as 1.2.3; by default that of git's tag or CHANGELOG.md")
	host := flag.Bool("host", false, "only for this machine's platform")
	flag.Parse()
	if err := run(*out, *version, *host, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(out, version string, host bool, kinds []string) error {
	ctx := context.Background()
	o := release.Options{Root: ".", Out: out, Targets: release.Targets(), Kinds: release.Kinds(), Progress: os.Stdout}
	var err error
	if version != "" {
		o.Version, err = release.ParseVersion(version)
	} else {
		o.Version, err = release.DescribeVersion(ctx, o.Root, func(problem string) {
			fmt.Fprintln(os.Stderr, "release: warning:", problem)
		})
	}
	if err != nil {
		return err
	}
	switch {
	case len(kinds) == 1 && kinds[0] == "version":
		_, err := fmt.Println(o.Version)
		return err
	case len(kinds) > 0:
		o.Kinds = nil
		for _, kind := range kinds {
			o.Kinds = append(o.Kinds, release.Kind(kind))
		}
	}
	if host {
		o.Targets = []release.Target{release.Host()}
	}
	if o.Date, err = release.SourceDate(ctx, o.Root, os.LookupEnv); err != nil {
		return err
	}
	return release.Run(ctx, o)
}
