package cli

import (
	"errors"
	"strings"
	"testing"
)

func TestLogger_NamesTopicsYamlInCommands(t *testing.T) {
	for file, want := range map[string]string{
		defaultConfig:  `level=ERROR msg="run orderclose topics apply" err="see orderclose status" n=3`,
		"/etc/oc.yaml": `level=ERROR msg="run orderclose --config /etc/oc.yaml topics apply" err="see orderclose --config /etc/oc.yaml status" n=3`,
	} {
		var out strings.Builder
		c := common{env: Env{Stderr: &out}, config: file}
		c.logger().Error("run orderclose topics apply", "err", errors.New("see orderclose status"), "n", 3)
		if got := out.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", file, got, want)
		}
	}
}
