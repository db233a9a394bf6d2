package main

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbom returns what the release contains, as CycloneDX in JSON: the modules and the Go library of
// the binaries, as these record them, and the root certificates of the image.
func (r *release) sbom() ([]byte, error) {
	roots, err := r.rootCertificates()
	if err != nil {
		return nil, err
	}
	info := r.programs[0].info
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, r.version)
	main.Properties = &[]cyclonedx.Property{{Name: "vcs.revision", Value: r.revision}}
	components := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range r.modules() {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component(cyclonedx.ComponentTypeLibrary, m.Path, m.Version))
	}
	certificates := component(cyclonedx.ComponentTypeData, roots.name, roots.version)
	certificates.Description = "root certificates, in the image only"
	components = append(components, certificates)

	var links []string
	for _, c := range components {
		links = append(links, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &links}}
	var b bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return b.Bytes(), err
}

// component returns a Go module as a component, with its package URL.
func component(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
	return cyclonedx.Component{BOMRef: purl, Type: kind, Name: path, Version: version, PackageURL: purl}
}
