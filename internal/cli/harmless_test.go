package cli

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// evil is what a row or a service may say: an escape in seven and in eight bits, a line of its own, a turn of the direction, and a letter without width.
const evil = "\x1b[31mA\u009b1m\nURGENT forged\r\u202eB\u200b"

// plant fills each field with evil, or with a value that is not zero.
func plant(v reflect.Value, depth int) {
	switch at, isTime := v.Interface().(time.Time); {
	case isTime:
		v.Set(reflect.ValueOf(at.AddDate(2026, 0, 0)))
	case depth > 8, !v.CanSet():
	case v.Kind() == reflect.String:
		v.SetString(evil)
	case v.CanInt():
		v.SetInt(3)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), depth+1)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), depth+1)
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(key, depth+1)
		plant(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Type() == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(fmt.Errorf("%s", evil)))
	case v.Type() == reflect.TypeFor[any]():
		v.Set(reflect.ValueOf(evil))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				plant(v.Field(i), depth+1)
			}
		}
	}
}

func planted[T any]() (v T) {
	plant(reflect.ValueOf(&v).Elem(), 0)
	return v
}

var (
	obeyed = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f-\u009f\u202a-\u202e\u2066-\u2069\u200b]")
	forged = regexp.MustCompile("(?m)^URGENT forged")
)

// own are the outputs with names that the program or topics.yaml gives, such as that of a check. Nobody else can put a line into them.
var own = []string{"checks", "replay", "delay", "delays", "verdict", "audit", "status", "history"}

// Whatever a row or a service says, a terminal obeys nothing of it, and it makes no line of its own.
func TestOutput_IsHarmless(t *testing.T) {
	for name, table := range map[string]func(w io.Writer){
		"report": func(w io.Writer) {
			r := planted[compensator.Report]()
			r.DryRun = false
			printReport(w, r, config.Default(), 0)
		},
		"letters":     func(w io.Writer) { printLetters(w, planted[listed]()) },
		"letter":      func(w io.Writer) { printLetter(w, planted[deadletters.Whole]()) },
		"history":     func(w io.Writer) { printHistory(w, planted[ops.History](), nil) },
		"pauses":      func(w io.Writer) { printPauses(w, "paused", planted[[]pausing.Pause]()) },
		"late":        func(w io.Writer) { printLate(w, planted[[]store.LatePayment]()) },
		"status":      func(w io.Writer) { printStatus(w, planted[backlog.Status](), true) },
		"verdict":     func(w io.Writer) { printVerdict(w, planted[health.Verdict]()) },
		"topics":      func(w io.Writer) { printTopicsPlan(w, planted[ops.TopicsPlan]()) },
		"findings":    func(w io.Writer) { printFindings(w, "", planted[[]kafka.Finding]()) },
		"checks":      func(w io.Writer) { printCheckups(w, planted[[]checkup]()) },
		"delay":       func(w io.Writer) { printDelay(w, planted[ops.DelayAnswer]()) },
		"delays":      func(w io.Writer) { printDelayPlan(w, planted[ops.DelayPlan]()) },
		"replay":      func(w io.Writer) { printReplayPlan(w, planted[ops.ReplayPlan](), 1, "x") },
		"audit":       func(w io.Writer) { printAudit(w, planted[ops.AuditSummary](), 1, nil) },
		"compensates": func(w io.Writer) { printWithoutKafka(w, planted[health.Answer[ops.Hours]]()) },
	} {
		for _, format := range []string{"table", "json"} {
			var out strings.Builder
			c := &common{env: Env{Stdout: &out}, output: format}
			must.Do(t, c.print(map[string]string{evil: evil}, table))
			line := forged.MatchString(out.String()) && !slices.Contains(own, name)
			expect.That(t, !line && !obeyed.MatchString(out.String()), "%s as %s: %q", name, format, out.String())
		}
	}
}
