package runbook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = `# Runbook

## First look

No parts.

## The relay is down

Alerts: ` + "`OrdercloseNoRelay`, `OrdercloseOther`" + `

**Meaning.** No relay
runs.

**Money at risk.** No.

**Look.** Here.

**Act.** Start:

1. One:

   ` + "```sh\n   orderclose run relay\n   orderclose status\n   ```" + `

` + "```sql\nSELECT 1\n```" + `

**Verify.** See.

` + "```sh\norderclose doctor\n```" + `
`

func TestRead_FindsPartsAndCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runbook.md")
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	sections, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sections["the-relay-is-down"]
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"OrdercloseNoRelay", "OrdercloseOther"}, s.Alerts); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		part, language string
		want           []string
	}{
		{"Act", "sh", []string{"orderclose run relay", "orderclose status"}},
		{"Act", "sql", []string{"SELECT 1"}},
		{"Verify", "sh", []string{"orderclose doctor"}},
		{"Look", "sh", nil},
	} {
		if diff := cmp.Diff(c.want, s.Commands(c.part, c.language)); diff != "" {
			t.Errorf("%s, %s: %s", c.part, c.language, diff)
		}
	}
	if err := sections["first-look"].Check(); err == nil {
		t.Error("a section without parts passes")
	}
}

func TestCheck_RefusesMissingEmptyAndMovedParts(t *testing.T) {
	for name, text := range map[string]string{
		"moved":   strings.Replace(strings.Replace(example, "**Look.**", "**X.**", 1), "**Act.**", "**Look.**", 1),
		"missing": strings.Replace(example, "**Money at risk.** No.", "", 1),
		"empty":   strings.Replace(example, "**Money at risk.** No.", "**Money at risk.**", 1),
		"twice":   strings.Replace(example, "**Look.** Here.", "**Look.** Here.\n\n**Look.** There.", 1),
	} {
		_, section, _ := strings.Cut(text, "\n## The")
		if err := parse("The" + section).Check(); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
}
