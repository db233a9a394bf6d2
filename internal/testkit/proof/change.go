package main

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// change is what has changed since the last make test-all.
type change struct {
	since   string   // its commit, or what stands for it
	why     string   // a line for the reader
	parts   []string // that test the changed code
	folders []string // with changed files
	eighth  int      // which eighth of the other mutants has its turn
}

// changeSince compares the commit that docs/reliability.md records with the files of the work tree.
func changeSince() (change, error) {
	count, err := git("rev-list", "--count", "HEAD")
	if err != nil {
		return change{}, err
	}
	commits, err := strconv.Atoi(count)
	if err != nil {
		return change{}, err
	}
	last, err := lastCommit()
	if err != nil {
		return change{}, err
	}
	c := change{since: last, eighth: commits % 8}
	if _, err := git("cat-file", "-e", last+"^{commit}"); err != nil {
		c.why = fmt.Sprintf("%s, the commit of the last make test-all, is not in this clone: an eighth of the mutants runs, and no other part", last)
		return c, nil
	}
	files, err := git("diff", "--name-only", "--no-renames", last)
	if err != nil {
		return change{}, err
	}
	c.parts, c.folders = partsOf(strings.Fields(files))
	c.why = fmt.Sprintf("since %s, the last make test-all, files of %d folders have changed: %s", last, len(c.folders), strings.Join(c.parts, ", "))
	return c, nil
}

// partsOf returns the parts that test files, and the folders that contain them.
func partsOf(files []string) (names, in []string) {
	for _, file := range files {
		names = append(names, folderOf(file).parts...)
		if dir := path.Dir(file); path.Ext(file) == ".go" {
			in = append(in, dir)
		}
	}
	slices.Sort(names)
	slices.Sort(in)
	return slices.Compact(names), slices.Compact(in)
}

// folderOf returns the folder of the table to which a file belongs.
func folderOf(file string) (of folder) {
	for _, f := range folders {
		if strings.HasPrefix(file, f.path) && len(f.path) >= len(of.path) {
			of = f
		}
	}
	return of
}
