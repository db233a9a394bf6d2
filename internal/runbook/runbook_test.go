package runbook

import (
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

**Act.** Start:

1. One:

   ` + "```sh\n   orderclose run relay\n   orderclose status\n   ```" + `

` + "```sql\nSELECT 1\n```" + `

**Verify.** See.

` + "```sh\norderclose doctor\n```" + `
`

func TestParse_FindsPartsAndCommands(t *testing.T) {
	sections := Parse(example)
	if len(sections) != 2 {
		t.Fatalf("%d sections", len(sections))
	}
	s := sections[1]
	if s.Title != "The relay is down" || s.Anchor != "the-relay-is-down" {
		t.Errorf("%q, %q", s.Title, s.Anchor)
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
		{"Meaning", "sh", nil},
	} {
		if diff := cmp.Diff(c.want, s.Commands(c.part, c.language)); diff != "" {
			t.Errorf("%s, %s: %s", c.part, c.language, diff)
		}
	}
	if parts := s.Parts(); len(parts) != 3 || parts[0] != (Part{"Meaning", "No relay\nruns.\n\n"}) || parts[2].Name != "Verify" {
		t.Errorf("%+v", parts)
	}
	if parts := sections[0].Parts(); len(parts) > 0 {
		t.Errorf("%+v", parts)
	}
}

func TestFind_TakesTitlesAnchorsAlertsAndPartsOfThem(t *testing.T) {
	for _, row := range []struct {
		name string
		want string // the first section; "": none
		many bool
	}{
		{"redis-or-the-lock-is-down", "redis-or-the-lock-is-down", false},
		{" Redis or the lock is down ", "redis-or-the-lock-is-down", false},
		{"#redis-or-the-lock-is-down", "redis-or-the-lock-is-down", false},
		{"topics.yaml was refused", "topicsyaml-was-refused", false},
		{"Is everything well?", "is-everything-well", false},
		{"OrdercloseLockUnavailable", "redis-or-the-lock-is-down", false},
		{"ordercloserolemissing", "a-role-is-missing", false},
		{"Change a delay", "changing-topics", false},
		{"redis", "redis-or-the-lock-is-down", false},
		{"dead-letters", "dead-letters", false},
		{"takes no writes", "the-database-takes-no-writes", false},
		{"the", "the-delay-of-a-category-was-wrong", true},
		{"OrdercloseRe", "records-do-not-leave-a-delay-topic", true},
		{"what is with redis", "redis-or-the-lock-is-down", false},
		{"redis does not answer", "a-process-does-not-answer", true},
		{"zebra", "", false},
	} {
		found := Find(row.name)
		if (len(found) > 1) != row.many || (len(found) > 0) != (row.want != "") || len(found) > 0 && found[0].Anchor != row.want {
			t.Errorf("%q: %d sections, want %+v", row.name, len(found), row)
		}
	}
}

func TestFirst_HasThreeCommandsOfMeaningAndAct(t *testing.T) {
	text := strings.Replace(example, "runs.", "runs.\n\n```sh\norderclose status\norderclose replay --from 2h --yes\norderclose doctor\n"+
		"orderclose status\n```", 1)
	want := []string{"orderclose status", "orderclose doctor", "orderclose run relay"}
	if diff := cmp.Diff(want, Parse(text)[1].First()); diff != "" {
		t.Error(diff)
	}
}

// status prints these commands, and people paste them.
func TestFirst_PausesNothing(t *testing.T) {
	for _, s := range Sections() {
		for _, command := range s.First() {
			if strings.Contains(command, "orderclose pause") {
				t.Errorf("%s: %s", s.Title, command)
			}
		}
	}
}

func TestPlain_ShowsWhereALinkLeads(t *testing.T) {
	s := Parse("x\n## Title\n\n**Act.** See [the\nrelay](#relay), `a[0]`.\n")[0]
	if got, want := s.Plain(), "Title\n\nAct. See the\nrelay (#relay), `a[0]`."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
