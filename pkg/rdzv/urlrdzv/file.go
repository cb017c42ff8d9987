package urlrdzv

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/kvstore/filestore"
)

// fileRendezvous is the Handler of file://.
func fileRendezvous(ctx context.Context, url string) (*Result, error) {
	l, err := parseURL(url)
	switch {
	case err != nil:
		return nil, err
	case l.authority != "" && l.authority != "localhost":
		return nil, fmt.Errorf("%q is a host, not a folder; write three slashes, file:///PATH", l.authority)
	case l.path == "":
		return nil, errors.New("path missing; write file:///PATH")
	}
	at, err := parsePosition(l.parameter)
	if err != nil {
		return nil, err
	}
	store, err := filestore.Open(ctx, l.path, filestore.Options{Workers: at.worldSize})
	if err != nil {
		return nil, err
	}
	return &Result{Store: store, Rank: at.rank, WorldSize: at.worldSize, Release: store.Close}, nil
}
