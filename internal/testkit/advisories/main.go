// Command advisories says which modules of this repository have a known vulnerability, by a file with advisories in the format of OSV,
// such as the database of Go (https://vuln.go.dev). It asks no server.
//
//	advisories -file FILE [module folder]...
//
// FILE has advisories one after the other, or as a list, in JSON. A module is in the graph of a folder's go.mod; that its code is linked or
// called is not checked. Exit code 1: there are findings.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	file := flag.String("file", "", "the file with advisories")
	flag.Parse()
	found, all, err := scan(*file, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "advisories:", err)
		os.Exit(1)
	}
	for _, line := range found {
		fmt.Println(line)
	}
	fmt.Printf("%d advisories for Go, %d findings\n", all, len(found))
	if len(found) > 0 {
		os.Exit(1)
	}
}

// advisory is one of OSV, with the fields that are read. A version is affected from an event introduced until fixed; "0" is every version.
type advisory struct {
	ID, Summary string
	Withdrawn   string
	Affected    []struct {
		Package struct{ Ecosystem, Name string }
		Ranges  []struct {
			Type   string
			Events []struct{ Introduced, Fixed string }
		}
	}
}

// scan returns a line for each module of a graph that an advisory affects, and how many advisories for Go there are.
func scan(file string, folders []string) (found []string, count int, err error) {
	all, err := read(file)
	if err != nil {
		return nil, 0, err
	}
	for _, folder := range append([]string{"."}, folders...) {
		cmd := exec.Command("go", "list", "-mod=readonly", "-m", "-f", "{{.Path}} {{.Version}}", "all")
		cmd.Dir, cmd.Stderr = folder, os.Stderr
		list, err := cmd.Output()
		if err != nil {
			return nil, 0, fmt.Errorf("go list in %s: %w", folder, err)
		}
		for line := range strings.Lines(string(list)) {
			module, version, _ := strings.Cut(strings.TrimSpace(line), " ")
			for _, a := range all[module] {
				if text := fmt.Sprintf("%s %s: %s %s", module, version, a.ID, a.Summary); a.affects(module, version) && !slices.Contains(found, text) {
					found = append(found, text)
				}
			}
		}
	}
	for _, of := range all {
		count += len(of)
	}
	return found, count, nil
}

// read returns the advisories of a file by module.
func read(file string) (map[string][]advisory, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []advisory
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		err = json.Unmarshal(data, &list)
	} else {
		for d := json.NewDecoder(bytes.NewReader(data)); err == nil; {
			var a advisory
			if err = d.Decode(&a); err == nil {
				list = append(list, a)
			}
		}
	}
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all := map[string][]advisory{}
	for _, a := range list {
		for _, of := range a.Affected {
			if name := of.Package.Name; of.Package.Ecosystem == "Go" && a.Withdrawn == "" && !slices.ContainsFunc(all[name], func(b advisory) bool {
				return a.ID == b.ID
			}) {
				all[name] = append(all[name], a)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no advisory for Go in the format of OSV", file)
	}
	return all, nil
}

// affects reports whether a version of a module is in a range of the advisory.
func (a advisory) affects(module, version string) bool {
	for _, of := range a.Affected {
		for _, r := range of.Ranges {
			in := false
			for _, e := range r.Events {
				switch {
				case of.Package.Name != module || r.Type != "SEMVER":
				case e.Introduced != "":
					in = in || e.Introduced == "0" || semver.Compare(version, "v"+e.Introduced) >= 0
				case e.Fixed != "":
					in = in && semver.Compare(version, "v"+e.Fixed) < 0
				}
			}
			if in {
				return true
			}
		}
	}
	return false
}
