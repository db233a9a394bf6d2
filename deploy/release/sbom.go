package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/orderclose/orderclose/internal/cli"
)

// sbom returns what the release contains, as CycloneDX in JSON: the binaries, the modules and the Go
// library that they link, and the root certificates of the image. A module has its license and the hash
// of go.sum, a binary the hash of its bytes.
func (r *release) sbom() ([]byte, error) {
	all, err := r.dependencies()
	if err != nil {
		return nil, err
	}
	main := component(cyclonedx.ComponentTypeApplication, r.programs[0].orderclose().Main.Path, r.version)
	main.Properties = &[]cyclonedx.Property{{Name: "vcs.revision", Value: r.revision}}
	main.Components = r.binaries()
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: cli.License}}}
	var components []cyclonedx.Component
	var links []string
	for i, d := range all {
		c, err := d.component()
		if err != nil {
			return nil, err
		}
		if i == len(all)-1 {
			c.Type, c.Description = cyclonedx.ComponentTypeData, "root certificates, in the image only"
		}
		components, links = append(components, c), append(links, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &links}}
	return numbered(bom)
}

// numbered encodes a BOM with a serial number, a UUID that follows from the rest of the BOM. So two
// builds of a commit have the same number, and two commits never have.
func numbered(bom *cyclonedx.BOM) ([]byte, error) {
	text, err := encoded(bom)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(text)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8 (RFC 9562)
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	return encoded(bom)
}

func encoded(bom *cyclonedx.BOM) ([]byte, error) {
	var b bytes.Buffer
	err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return b.Bytes(), err
}

// binaries returns the binaries of each archive.
func (r *release) binaries() *[]cyclonedx.Component {
	var all []cyclonedx.Component
	for _, p := range r.programs {
		for _, b := range p.binaries {
			sum := sha256.Sum256(b.data)
			name := r.archiveName(p.target) + "/" + b.name
			all = append(all, cyclonedx.Component{Type: cyclonedx.ComponentTypeFile, Name: name, Version: r.version, Hashes: sha256Hash(sum[:])})
		}
	}
	return &all
}

// component returns a dependency as a component.
func (d dependency) component() (cyclonedx.Component, error) {
	name, version := d.name, d.version
	if name == "Go" { // the part of Go that a binary links is its standard library
		name, version = "std", strings.TrimPrefix(version, "go")
	}
	c := component(cyclonedx.ComponentTypeLibrary, name, version)
	ids, err := licenseIDs(d)
	if err != nil {
		return c, err
	}
	choice := cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: ids}}
	if strings.Contains(ids, " ") {
		choice = cyclonedx.LicenseChoice{Expression: ids}
	}
	c.Licenses = &cyclonedx.Licenses{choice}
	if hash, ok := strings.CutPrefix(d.sum, "h1:"); ok {
		sum, err := base64.StdEncoding.DecodeString(hash)
		if err != nil {
			return c, fmt.Errorf("go.sum of %s: %w", d.name, err)
		}
		c.Hashes = sha256Hash(sum)
	}
	return c, nil
}

func sha256Hash(sum []byte) *[]cyclonedx.Hash {
	return &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
}

// component returns a Go module as a component, with its package URL.
func component(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
	return cyclonedx.Component{BOMRef: purl, Type: kind, Name: path, Version: version, PackageURL: purl}
}
