package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestSBOM_HasEveryModuleOfTheBinaries(t *testing.T) {
	var bom cyclonedx.BOM
	data := released(t)["orderclose_"+tag+".sbom.json"]
	must.Do(t, cyclonedx.NewBOMDecoder(bytes.NewReader(data), cyclonedx.BOMFileFormatJSON).Decode(&bom))
	purls := map[string]bool{}
	for _, c := range *bom.Components {
		purls[c.PackageURL] = true
		expect.That(t, c.Licenses != nil && len(*c.Licenses) == 1, "%s has no license", c.Name)
		expect.That(t, c.Name == "std" || c.Hashes != nil && len((*c.Hashes)[0].Value) == 64, "%s has no hash", c.Name)
	}
	for _, x := range chosenTargets() {
		files := archive(t, x)
		info := must.Get(buildinfo.Read(bytes.NewReader(files["orderclose"])))(t)
		want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
		for _, m := range linked(t, files) {
			want = append(want, strings.ToLower("pkg:golang/"+m.Path)+"@"+m.Version)
		}
		for _, purl := range want {
			expect.That(t, purls[purl], "%v: %s is missing", x, purl)
		}
	}
	main := bom.Metadata.Component
	expect.That(t, main.Version == tag && strings.Contains(string(data), revision(t)), "the SBOM is of %s, want version and revision", main.PackageURL)
	expect.That(t, main.Licenses != nil && (*main.Licenses)[0].License.ID == cli.License, "the SBOM does not name the license of the product: %v", main.Licenses)
	for i, x := range chosenTargets() {
		for n, b := range built {
			binary := (*main.Components)[i*len(built)+n]
			want := fmt.Sprintf("%x", sha256.Sum256(archive(t, x)[b.name]))
			expect.That(t, (*binary.Hashes)[0].Value == want, "%s has another hash than the binary in the archive", binary.Name)
		}
	}
}

// The schema is that of CycloneDX, beside its Go library.
func TestSBOM_IsValid(t *testing.T) {
	library := must.Get(locate(".", "github.com/CycloneDX/cyclonedx-go"))(t)
	c := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schemax.json"} {
		text := must.Get(os.ReadFile(filepath.Join(library[0].dir, "schema", name)))(t)
		doc := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
		must.Do(t, c.AddResource("http://cyclonedx.org/schema/"+strings.Replace(name, "schemax", "schema", 1), doc))
	}
	schema := must.Get(c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json"))(t)
	data := released(t)["orderclose_"+tag+".sbom.json"]
	bom := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(data)))(t)
	expect.NoError(t, schema.Validate(bom))
	expect.That(t, regexp.MustCompile(`"serialNumber": "urn:uuid:[0-9a-f-]{36}"`).Match(data), "the SBOM has no serial number")
	bom.(map[string]any)["serialNumber"] = "1"
	expect.That(t, schema.Validate(bom) != nil, "the schema accepts a wrong serial number")
}

// The owner may choose another license: its text, and the names of it in the program and the chart, change together.
func TestSBOM_NamesTheLicenseOfTheProduct(t *testing.T) {
	have := must.Get(licenseIDs(dependency{name: "orderclose", dir: "../.."}))(t)
	expect.Equal(t, have, cli.License, "LICENSE has the text of another license than internal/cli names")
	for file, line := range map[string]string{
		"../helm/orderclose/Chart.yaml": "  artifacthub.io/license: ", "../compose/Dockerfile": "LABEL org.opencontainers.image.licenses=",
	} {
		text := string(must.Get(os.ReadFile(file))(t))
		expect.That(t, strings.Contains(text, "\n"+line+cli.License+"\n"), "%s does not name %s", file, cli.License)
	}
}

// A license is named by its SPDX id. One that nobody has read yet is refused.
func TestSBOM_NamesLicenses(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                                                                    "Apache-2.0",
		"Permission is hereby granted, free of\ncharge, to any person\n\nApache License, Version 2.0":                                     "Apache-2.0 AND MIT",
		"Redistributions in binary form must reproduce":                                                                                   "BSD-2-Clause",
		"Redistributions in binary form must reproduce\n * Neither the name of Google Inc. nor the names of its contributors may be used": "BSD-3-Clause",
		"All rights reserved.": "",
	} {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(text), 0o600))
		have, err := licenseIDs(dependency{name: "example.org/m", dir: dir})
		expect.That(t, have == want && (err == nil) == (want != ""), "%q: %q, %v, want %q", text, have, err, want)
	}
}
