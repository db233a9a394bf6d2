package cli

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(c *common) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  orderclose version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			return c.print(v, func(w io.Writer) { fmt.Fprintf(w, "orderclose %s %s %s %s\n", v.Version, v.Revision, v.Go, v.License) })
		},
	}
}

// version is the output of version.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	License  string `json:"license"`
}

// License is the license of the product, as its SPDX id. Its text is in the file LICENSE.
const License = "Apache-2.0"

// buildVersion returns what the compiler has written into the binary.
func buildVersion() version {
	v := version{Version: "unknown", License: License}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version, v.Go = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}
