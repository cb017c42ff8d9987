package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// imageUser owns nothing in the image. Its number is that of nonroot in other images.
const imageUser = "65532:65532"

// Media types of https://github.com/opencontainers/image-spec.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations"`
}

type imageConfig struct {
	Created time.Time `json:"created"`
	platform
	Config struct {
		User         string
		ExposedPorts map[string]struct{}
		Entrypoint   []string
		Cmd          []string
		Labels       map[string]string
		StopSignal   string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// layout collects the blobs of an OCI image layout.
type layout struct{ files []file }

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// add adds a blob and returns its descriptor.
func (l *layout) add(mediaType string, data []byte) descriptor {
	l.files = append(l.files, file{name: fmt.Sprintf("blobs/sha256/%x", sha256.Sum256(data)), data: data})
	return descriptor{MediaType: mediaType, Digest: digest(data), Size: len(data)}
}

// addJSON adds a value as a blob.
func (l *layout) addJSON(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, fmt.Errorf("write %s: %w", mediaType, err)
	}
	return l.add(mediaType, data), nil
}

// image makes an OCI image layout for all Linux targets, in a tar file as podman, skopeo and docker read it. The images
// have nothing but /elasticrun and its license: the binary needs no other file.
func (s *sources) image(ctx context.Context) ([]file, error) {
	var l layout
	all := index{SchemaVersion: 2, MediaType: indexType, Annotations: s.annotations()}
	for _, t := range s.linux() {
		one, err := s.addImage(ctx, &l, t)
		if err != nil {
			return nil, fmt.Errorf("for %s: %w", t, err)
		}
		all.Manifests = append(all.Manifests, one)
	}
	if len(all.Manifests) == 0 {
		return nil, nil // no target is Linux
	}
	images, err := l.addJSON(indexType, all)
	if err != nil {
		return nil, err
	}
	// Tools name the image by this annotation.
	images.Annotations = map[string]string{"org.opencontainers.image.ref.name": s.imageTag()}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{images}})
	if err != nil {
		return nil, fmt.Errorf("write index.json: %w", err)
	}
	files := append(l.files, file{name: "index.json", data: top},
		file{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	var packed bytes.Buffer
	err = writeTar(&packed, byName(files), s.o.Date)
	return []file{{name: fmt.Sprintf("elasticrun-%s-oci.tar", s.o.Version), data: packed.Bytes()}}, err
}

// imageTag returns the version as an image tag, which may not contain a plus sign.
func (s *sources) imageTag() string { return strings.ReplaceAll(s.o.Version.String(), "+", "-") }

func (s *sources) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "elasticrun",
		"org.opencontainers.image.version":  s.o.Version.String(),
		"org.opencontainers.image.created":  s.o.Date.UTC().Format(time.RFC3339),
		"org.opencontainers.image.source":   "https://github.com/elasticrun/elasticrun",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// addImage adds the image for a platform: a layer, its configuration and the manifest of both.
func (s *sources) addImage(ctx context.Context, l *layout, t Target) (descriptor, error) {
	binary, err := s.binary(ctx, t)
	if err != nil {
		return descriptor{}, err
	}
	license, err := s.text("LICENSE")
	if err != nil {
		return descriptor{}, err
	}
	var layer, zipped bytes.Buffer
	files := []file{{name: "LICENSE", data: license}, {name: "elasticrun", data: binary, executable: true}}
	if err := writeTar(&layer, files, s.o.Date); err != nil {
		return descriptor{}, err
	}
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(layer.Bytes()); err != nil {
		return descriptor{}, fmt.Errorf("compress the layer: %w", err)
	}
	if err := w.Close(); err != nil {
		return descriptor{}, fmt.Errorf("compress the layer: %w", err)
	}
	on := platform{Architecture: t.Arch, OS: t.OS}
	config, err := l.addJSON(configType, s.imageConfig(on, digest(layer.Bytes())))
	if err != nil {
		return descriptor{}, err
	}
	image, err := l.addJSON(manifestType, manifest{
		SchemaVersion: 2, MediaType: manifestType, Config: config, Annotations: s.annotations(),
		Layers: []descriptor{l.add(layerType, zipped.Bytes())},
	})
	image.Platform = &on
	return image, err
}

func (s *sources) imageConfig(on platform, layer string) imageConfig {
	created := s.o.Date.UTC().Truncate(time.Second)
	c := imageConfig{Created: created, platform: on, History: []history{{Created: created, CreatedBy: "make release"}}}
	c.Config.User = imageUser
	c.Config.ExposedPorts = map[string]struct{}{"29400/tcp": {}}
	c.Config.Entrypoint = []string{"/elasticrun"}
	c.Config.Cmd = []string{"store", "--listen=:29400"}
	c.Config.Labels = s.annotations()
	c.Config.StopSignal = "SIGTERM"
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{layer}
	return c
}
