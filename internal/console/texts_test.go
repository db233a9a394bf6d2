package console

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/webhook"
)

var (
	textKey = regexp.MustCompile(`\.T "([^"]+)"|(?:Away|Problem) "([^"]+)"|"((?:server|now|error|verdict|problem)\.[a-z_]+)"`)
	verb    = regexp.MustCompile(`%[sd]`)
	refusal = regexp.MustCompile(`Refusal\{http\.\w+, "(\w+)"`)
)

// kinds returns the kinds of findings that people see.
func kinds() (all []health.Kind) {
	for _, c := range append(ops.Checks(), webhook.Check) {
		all = append(all, slices.DeleteFunc(slices.Clone(c.Finds), func(k health.Kind) bool { return k.Severity == "" })...)
	}
	return all
}

// computed are the keys that the code puts together.
func computed() (keys []string) {
	for _, l := range languages {
		keys = append(keys, "language."+l)
	}
	for _, s := range []health.State{health.Well, health.LookToday, health.ActNow, health.Unknown} {
		keys = append(keys, "verdict."+string(s))
	}
	for _, s := range []health.Severity{health.Urgent, health.Today, health.Healed} {
		keys = append(keys, "severity."+string(s))
	}
	for _, k := range kinds() {
		keys = append(keys, "problem."+string(cmp.Or(k.As, k.Name)))
	}
	for name := range templates() {
		keys = append(keys, name+".title")
	}
	for _, l := range slices.Concat(charts...) {
		keys = append(keys, l.key)
	}
	for _, kind := range []string{kindPause, kindResume, kindRefunded, kindReopened} {
		keys = append(keys, "kind."+kind, "confirm."+kind)
	}
	for _, s := range []actionState{asked, nothing, done, failed} {
		keys = append(keys, "action.state_"+string(s))
	}
	for _, name := range []string{"order", "category", "for", "reason", "replace", "late"} {
		keys = append(keys, "field."+name)
	}
	for _, s := range []store.Status{store.Unpaid, store.Paid, store.Closed, store.Cancelled} {
		keys = append(keys, "state."+s.String())
	}
	source, err := os.ReadFile("access/refusal.go")
	if err != nil {
		panic(err)
	}
	for _, m := range refusal.FindAllStringSubmatch(string(source), -1) {
		keys = append(keys, "refusal."+m[1])
	}
	for key := range texts() { // of page.Word
		for _, group := range []string{"payments.source.", "where."} {
			if strings.HasPrefix(key, group) {
				keys = append(keys, key)
			}
		}
	}
	for _, kind := range []string{kindPause, kindRefunded, kindReopened} {
		keys = append(keys, "action."+kind+"_effect")
	}
	return append(keys, "ago", "in", "error.failed", "error.kafka", "error.no_letter", "letters.order_open", "letters.order_ended", "letters.order_",
		"role.viewer", "role.operator", "error.no_action", "server.kafka", "server.database",
		"state.counts as paid", "state.counts as closed", "error.not_found", "error.form", "error.busy")
}

func TestTexts_AreCompleteInEachLanguage(t *testing.T) {
	used := map[string]bool{}
	for _, key := range computed() {
		used[key] = true
	}
	names := must.Get(fs.Glob(files, "templates/*.html"))(t)
	for _, name := range names {
		data := must.Get(files.ReadFile(name))(t)
		for _, m := range textKey.FindAllStringSubmatch(string(data), -1) {
			used[m[1]+m[2]+m[3]] = true
		}
	}
	delete(used, "verdict.") // the beginning of a computed key
	for key := range used {
		expect.That(t, texts()[key] != nil || strings.HasSuffix(key, "."), "texts.yaml lacks %q", key)
	}
	for key, byLanguage := range texts() {
		expect.That(t, used[key] || strings.HasPrefix(key, "phrase."), "nothing uses %q", key)
		for _, l := range languages {
			expect.That(t, byLanguage[l] != "", "%q lacks %s", key, l)
			a, b := verb.FindAllString(byLanguage[l], -1), verb.FindAllString(byLanguage["en"], -1)
			expect.That(t, strings.Join(a, "") == strings.Join(b, ""), "%q has %v in %s, and %v in en", key, a, l, b)
		}
		expect.Equal(t, len(byLanguage), len(languages), "%q has languages that the console does not speak: %v", key, byLanguage)
	}
}

// A sentence has its moments as the page has them, and its lengths as topics.yaml has them.
func TestTranslate_WritesMomentsAndLengthsAsThePageDoes(t *testing.T) {
	closed := ops.Sentence{
		{Format: "created, to be closed at %s if it is not paid", Args: []any{time.Date(2026, 11, 26, 19, 21, 13, 0, time.UTC)}},
		{Format: "closed by %s, %s after it was due", Args: []any{orderclose.PathSweep, 350 * time.Millisecond}},
	}
	at := func(t time.Time) string { return t.In(time.FixedZone("", 8*3600)).Format(time.DateTime) }
	expect.Equal(t, translate("en", closed, at),
		"created, to be closed at 2026-11-27 03:21:13 if it is not paid; closed by sweep, 350ms after it was due", "English")
	expect.Equal(t, translate("zh", closed, at), "已创建，若未支付将于 2026-11-27 03:21:13 关闭；由 sweep 关闭，到期后 350ms", "Chinese")
	expect.Equal(t, closed.String(), "created, to be closed at 2026-11-26T19:21:13.000Z if it is not paid; closed by sweep, 350ms after it was due", "JSON")
}

var saying = regexp.MustCompile(`say\(("(?:[^"\\]|\\.)*")`)

func TestPhrases_AreThoseOfOps(t *testing.T) {
	used := map[string]bool{"%s": true}
	names := must.Get(filepath.Glob("../ops/*.go"))(t)
	for _, name := range names {
		data := must.Get(os.ReadFile(name))(t)
		for _, m := range saying.FindAllStringSubmatch(string(data), -1) {
			format := must.Get(strconv.Unquote(m[1]))(t)
			if used[format] = true; format != "%s" && phrases()[format] == "" {
				t.Errorf("texts.yaml lacks the phrase %q of %s", format, name)
			}
		}
	}
	for format := range phrases() {
		expect.That(t, used[format], "internal/ops does not say %q", format)
	}
	expect.That(t, len(used) >= 20, "found only %v", used)
}

func TestLanguage_IsThatOfTheBrowserUnlessOneIsChosen(t *testing.T) {
	for _, row := range []struct{ chosen, accepted, want string }{
		{"", "", "en"}, {"", "zh-CN,zh;q=0.9,en;q=0.8", "zh"}, {"", "en-GB,zh;q=0.5", "en"}, {"", "zh-TW", "zh"}, {"", "fr,de;q=0.5", "en"},
		{"", "fr,zh;q=0.5", "zh"}, {"en", "zh", "en"}, {"zh", "en", "zh"}, {"xx", "zh", "zh"}, {"", "q=;;,*", "en"},
	} {
		expect.Equal(t, languageOf(row.chosen, row.accepted), row.want, "chosen %q, accepted %q", row.chosen, row.accepted)
	}
}

var section = regexp.MustCompile(`Runbook "([^"]+)"`)

func TestRunbook_HasEachSectionThatAPageLinksTo(t *testing.T) {
	var linked []string
	for _, k := range kinds() {
		linked = append(linked, k.Runbook)
	}
	names := must.Get(fs.Glob(files, "templates/*.html"))(t)
	for _, name := range names {
		page := must.Get(files.ReadFile(name))(t)
		for _, m := range section.FindAllStringSubmatch(string(page), -1) {
			linked = append(linked, m[1])
		}
	}
	for _, anchor := range linked {
		_, ok := runbook.At(anchor)
		expect.That(t, ok, "docs/runbook.md has no section %q", anchor)
	}
	expect.That(t, len(linked) >= 15, "found only %v", linked)
}
