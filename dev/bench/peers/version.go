package main

import (
	"path"
	"runtime/debug"
)

// versionOf returns name and version of a library that this program is built with.
func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, d := range info.Deps {
			if d.Path == module {
				return path.Base(path.Dir(module)) + "/" + path.Base(module) + " " + d.Version
			}
		}
	}
	return module
}
