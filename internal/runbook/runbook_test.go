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

**Money at risk.** No.

**Look.** Here.

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
	if err := sections[0].Check(); err == nil {
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

func TestFind_TakesTitlesAnchorsAlertsAndPartsOfThem(t *testing.T) {
	for _, row := range []struct {
		name    string
		want    string // the first section; "": none
		many    bool
		exactly bool
	}{
		{"redis-is-down", "redis-is-down", false, true},
		{" Redis is down ", "redis-is-down", false, true},
		{"#redis-is-down", "redis-is-down", false, true},
		{"topics.yaml was refused", "topicsyaml-was-refused", false, true},
		{"Is everything well?", "is-everything-well", false, true},
		{"OrdercloseLockUnavailable", "redis-is-down", false, true},
		{"orderclosenocloser", "the-closer-is-behind", false, true},
		{"Change a delay", "changing-topics", false, true},
		{"redis", "redis-is-down", false, true},
		{"dead-letters", "dead-letters", false, true},
		{"takes no writes", "the-database-takes-no-writes", false, true},
		{"the", "the-delay-of-a-category-was-wrong", true, true},
		{"OrdercloseNo", "the-closer-is-behind", true, true},
		{"why does redis not answer", "a-process-does-not-answer", true, false},
		{"zebra", "", false, false},
	} {
		found, exactly := Find(row.name)
		if (len(found) > 1) != row.many || exactly != row.exactly || (len(found) > 0) != (row.want != "") || len(found) > 0 && found[0].Anchor != row.want {
			t.Errorf("%q: %d sections, exactly %v, want %+v", row.name, len(found), exactly, row)
		}
	}
}

func TestFirst_HasThreeCommandsOfLookAndAct(t *testing.T) {
	text := strings.Replace(example, "**Look.** Here.", "**Look.** Here.\n\n```sh\norderclose status\norderclose dlq redrive --yes\norderclose sweeps\norderclose status\n```", 1)
	want := []string{"orderclose status", "orderclose sweeps", "orderclose run relay"}
	if diff := cmp.Diff(want, Parse(text)[1].First()); diff != "" {
		t.Error(diff)
	}
}

func TestPlain_ShowsWhereALinkLeads(t *testing.T) {
	s := Parse("x\n## Title\n\n**Look.** See [the\nrelay](#relay), `a[0]`.\n")[0]
	if got, want := s.Plain(), "Title\n\nLook. See the\nrelay (#relay), `a[0]`."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
