package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// loadModel returns the model of the checkpoint at path, or a new model if there is none.
func loadModel(path string) (model, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newModel(), nil
	}
	var m model
	if err == nil {
		m, err = decodeModel(text)
	}
	if err != nil {
		return model{}, fmt.Errorf("cannot use checkpoint %s: %w; remove it to start again", path, err)
	}
	return m, nil
}

func decodeModel(text []byte) (model, error) {
	var m model
	if err := json.Unmarshal(text, &m); err != nil {
		return model{}, err
	}
	if m.Steps < 0 || len(m.Weights) != weightCount || len(m.Velocity) != weightCount {
		return model{}, fmt.Errorf("it has %d steps, %d weights and %d velocities, want %d of both",
			m.Steps, len(m.Weights), len(m.Velocity), weightCount)
	}
	return m, nil
}

// save writes the model. JSON numbers have the shortest decimal that reads back as the same value, so every bit is
// kept.
func (m model) save(path string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return replace(path, text)
}

// replace writes a file atomically: path always has the old or the new content.
func replace(path string, content []byte) error {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
