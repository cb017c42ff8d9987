package elastic

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// readEarlierGroup returns what an earlier agent at this endpoint has recorded, or nil. The group of another job does
// not count, nor that of another launch, which its scheduler has ended.
func (p *hostPlace) readEarlierGroup(a *C10d) *founding.EarlierGroup {
	for _, marker := range p.markers {
		if marker == nil {
			continue
		}
		text, err := os.ReadFile(marker.GroupFile())
		if err != nil {
			continue
		}
		g := &founding.EarlierGroup{}
		if json.Unmarshal(text, g) != nil || g.Label != a.Label ||
			g.Launch != "" && a.LaunchID != "" && g.Launch != a.LaunchID {
			return nil
		}
		return g
	}
	return nil
}

// groupFile returns the name of the file that readEarlierGroup reads, or "".
func (p *hostPlace) groupFile() string {
	for _, marker := range p.markers {
		if marker != nil {
			return marker.GroupFile()
		}
	}
	return ""
}

// replaceFile writes a file as a whole.
func replaceFile(path string, text []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	_, err = temporary.Write(text)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(temporary.Name()))
	}
	return err
}

// removeFile removes a file, if there is one.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeGroup records which agents may go on without this process. It warns once, and not at all if a warning has said
// that there is no place for files.
func (p *hostPlace) writeGroup(g founding.EarlierGroup) {
	err := p.writeBeside((*machine.Marker).GroupFile, g)
	if err != nil && p.unknown == nil && !p.warnedOfGroup.Swap(true) {
		p.log.Warn().Err(err).Msg("cannot record which nodes keep the job's store: if this agent is started again while " +
			"they go on, it may begin the job a second time")
	}
}

// writeHeirs records which agents can take over from this process. If it fails, none can.
func (p *hostPlace) writeHeirs(g founding.EarlierGroup) error {
	return p.writeBeside((*machine.Marker).HeirsFile, g)
}

// writeBeside replaces a file beside each marker.
func (p *hostPlace) writeBeside(file func(*machine.Marker) string, g founding.EarlierGroup) error {
	text, err := json.Marshal(g)
	if err != nil {
		return err
	}
	for _, marker := range p.markers {
		if marker == nil {
			return errors.New("this store has no marker")
		}
		if err := replaceFile(file(marker), text); err != nil {
			return err
		}
	}
	return nil
}

// removeBeside removes a file beside each marker. A nil marker, for which there was no place, has no such file.
func (p *hostPlace) removeBeside(file func(*machine.Marker) string) {
	for _, marker := range p.markers {
		if marker == nil {
			continue
		}
		if err := removeFile(file(marker)); err != nil {
			p.log.Debug().Err(err).Msg("cannot remove a file that names who keeps the job's store")
		}
	}
}
