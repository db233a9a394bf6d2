// Package deploy contains what runs the pipeline in production: the alert rules for Prometheus with their tests (alerts), everything to run it in
// containers on one machine (compose), on Kubernetes (helm) and as systemd units (systemd), and scripts that start real servers for tests (native).
// Its tests check what can be checked without a container engine. The dashboards (grafana), more tests of the objects of Kubernetes (kubetest) and those
// of the web console (consoletest) are modules of their own.
package deploy

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// decode decodes a YAML file strictly: a key without a field in into is an error.
func decode(t *testing.T, name string, into any) {
	t.Helper()
	f := must.Get(os.Open(name))(t)
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	err := d.Decode(into)
	must.That(t, err == nil, "%s: %v", name, err)
}

// tool runs a checker of Prometheus. If it is not installed the test is skipped, or fails if REQUIRE_REAL is 1.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		must.That(t, os.Getenv("REQUIRE_REAL") != "1", "%s is not there: run deploy/native/install.sh %[1]s", name)
		t.Skip(name, "is not there")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	must.That(t, err == nil && len(names) != 0, "no %s: %v", pattern, err)
	return names
}

// rule is an alert rule.
type rule struct {
	file                string
	Alert, Expr         string
	For                 string `yaml:",omitempty"`
	KeepFiringFor       string `yaml:"keep_firing_for,omitempty"`
	Labels, Annotations map[string]string
}

// rules returns the rules of all files by name.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	all := map[string]rule{}
	for _, name := range files(t, rulesFolder+"*.rules.yml") {
		var f struct {
			Groups []struct {
				Name  string
				Rules []rule
			}
		}
		decode(t, name, &f)
		for _, g := range f.Groups {
			for _, r := range g.Rules {
				key := strings.TrimSuffix(r.Alert+"/"+r.Labels["what"], "/") // a second rule of an alert has the label what
				_, twice := all[key]
				expect.That(t, !twice, "%s: a second alert is named %s", name, key)
				r.file = name
				all[key] = r
			}
		}
	}
	return all
}

// promtool evaluates all rules in each test, and a test names few alerts. With the rules of these alerts only, promtool takes a tenth of the time.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	tool(t, "promtool", append([]string{"check", "rules", sweeperRules}, files(t, rulesFolder+"*.rules.yml")...)...)
	all, dir, args := rules(t), t.TempDir(), []string{"test", "rules"}
	write := func(name string, content any) {
		data, err := yaml.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		must.Do(t, err)
	}
	for _, name := range files(t, "alerts/*.test.yml") {
		var f struct {
			Rules    []string    `yaml:"rule_files"`
			Interval string      `yaml:"evaluation_interval"`
			Tests    []yaml.Node // as nodes, 0x60 stays a text: YAML reads it as a number
		}
		decode(t, name, &f)
		for i, test := range f.Tests {
			withoutAliases(&test)
			var checked alertTest
			must.Do(t, test.Decode(&checked))
			named := map[string]rule{}
			for key, r := range all {
				if slices.ContainsFunc(checked.Checks, func(c alertCheck) bool { return c.Alert == r.Alert }) {
					named[key] = r
				}
			}
			rulesFile, testFile := fmt.Sprintf("%d-%s.rules", i, filepath.Base(name)), fmt.Sprintf("%d-%s", i, filepath.Base(name))
			write(rulesFile, map[string]any{"groups": []any{map[string]any{"name": "named", "rules": slices.Collect(maps.Values(named))}}})
			write(testFile, map[string]any{"rule_files": []string{rulesFile}, "evaluation_interval": f.Interval, "tests": []yaml.Node{test}})
			args = append(args, filepath.Join(dir, testFile))
		}
	}
	tool(t, "promtool", args...)
}

// rulesFolder has the rules. Helm reads only files below the chart.
const rulesFolder = "helm/orderclose/alerts/"

// sweeperRules has the rules for sweeps alone, in a folder of its own: a Prometheus of a pipeline that reads all files of the folder
// alerts would have each of these rules twice.
const sweeperRules = rulesFolder + "sweeper/sweeper.rules.yml"

var (
	comments    = regexp.MustCompile(`(?m)^ *#.*\n`)
	ofRoles     = regexp.MustCompile(`(?s)expr: .*\n        for: `)
	compensates = regexp.MustCompile(`absent\([^)]*compensator[^)]*\)`)
	ofPipelines = regexp.MustCompile(`(?i)\b(kafka|relay|closers?|pipeline|redis|compensators? )\b`)
)

// sweeperTexts are the words of rules in which those for sweeps alone differ, each followed by what stands there.
var sweeperTexts = []string{
	"compensator ", "sweeper ", "Compensators ", "Sweepers ",
	", or no relay has a partition, as while Kafka is down", "",
	"Their records wait in Kafka, or were acknowledged without a close, or were never written.", "Sweepers do not close them.",
	"Orders that the pipeline missed stay open.", "Due orders stay open.",
	", and one begins each 15 s. Old orders that the pipeline missed", ". Old orders",
	", or Redis does not answer or refuses writes", "",
	`max(orderclose_waiting_unseen) > 0, "what", "topics", "", "")
          or label_replace(absent(orderclose_topic_drift)
          and on () max(present_over_time(orderclose_topic_drift[1d])) > 0, "what", "settings of topics", "", "")
          or label_replace(time() - max(orderclose_dead_letters_read_timestamp_seconds) > 600
          or absent(orderclose_dead_letters_read_timestamp_seconds), "what", "dead letters", "", "")
          or label_replace(`, "",
	"compensators\n            and closers", "sweepers",
	"Stuck: its key in Redis has no expiry, or one that is too long. Instead of Redis the database has the lock. Without both", "Without it",
}

// The rules for sweeps alone are those of sweeps.rules.yml and services.rules.yml without the comment "Not of sweeps alone", and of
// pipeline.rules.yml those with the comment "Also of sweeps alone". UPDATE_GOLDEN=1 writes them.
func TestAlerts_OfSweepsAloneAreThoseOfThePipeline(t *testing.T) {
	text := "# Alerts for sweeps alone (orderclose run sweeper), in place of all other files. Generated from these:\n" +
		"# UPDATE_GOLDEN=1 go test ./deploy -run SweepsAlone\ngroups:\n  - name: orderclose-sweeper\n    rules:\n"
	for _, name := range []string{"pipeline", "services", "sweeps"} {
		_, all, _ := strings.Cut(string(must.Get(os.ReadFile(rulesFolder+name+".rules.yml"))(t)), "    rules:\n")
		for _, rule := range strings.Split(strings.TrimSpace(all), "\n\n") {
			if strings.Contains(rule, "# Not of sweeps alone.\n") || name == "pipeline" && !strings.Contains(rule, "# Also of sweeps alone.\n") {
				continue
			}
			rule = strings.TrimSpace(comments.ReplaceAllString(rule, ""))
			if strings.Contains(rule, "alert: OrdercloseRoleMissing") {
				rule = ofRoles.ReplaceAllString(rule, `expr: label_replace(`+compensates.FindString(rule)+`, "role", "sweeper", "", "")`+"\n        for: ")
			}
			text += "      " + rule + "\n\n"
		}
	}
	for i := 0; i < len(sweeperTexts); i += 2 {
		expect.That(t, strings.Contains(text, sweeperTexts[i]), "no rule has the words %q", sweeperTexts[i])
		text = strings.ReplaceAll(text, sweeperTexts[i], sweeperTexts[i+1])
	}
	text = strings.TrimSpace(text) + "\n"
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(sweeperRules, []byte(text), 0o644))
	}
	have := must.Get(os.ReadFile(sweeperRules))(t)
	found := ofPipelines.FindString(regexp.MustCompile(`runbook_url: .*`).ReplaceAllString(string(have), ""))
	expect.That(t, found == "", "%s speaks of %q, which sweeps alone do not have: sweeperTexts", sweeperRules, found)
	expect.That(t, string(have) == text, "%s is not what the other rules give: UPDATE_GOLDEN=1 go test ./deploy -run SweepsAlone", sweeperRules)
}

// withoutAliases puts what an alias names in its place.
func withoutAliases(n *yaml.Node) {
	if n.Alias != nil {
		*n = *n.Alias
	}
	n.Anchor = ""
	for _, part := range n.Content {
		withoutAliases(part)
	}
}

// alertTest is a test of promtool, with the fields that the tests here use.
type alertTest struct {
	Checks []alertCheck `yaml:"alert_rule_test"`
}

type alertCheck struct {
	Alert string `yaml:"alertname"`
	Fires []any  `yaml:"exp_alerts"`
}

// Each alert has a test in which it does not fire, then fires, and then is resolved.
func TestAlerts_AreTestedWhileSilentFiringAndResolved(t *testing.T) {
	silent, resolved := map[string]bool{}, map[string]bool{}
	for _, name := range files(t, "alerts/*.test.yml") {
		var f struct{ Tests []alertTest }
		data := must.Get(os.ReadFile(name))(t)
		must.Do(t, yaml.Unmarshal(data, &f))
		for _, test := range f.Tests {
			fired := map[string]bool{}
			for _, c := range test.Checks {
				switch {
				case len(c.Fires) > 0:
					fired[c.Alert] = true
				case fired[c.Alert]:
					resolved[c.Alert] = true
				default:
					silent[c.Alert] = true
				}
			}
		}
	}
	for _, r := range rules(t) {
		name := r.Alert
		expect.That(t, silent[name] && resolved[name], "%s: %s is tested silent: %v, firing and then resolved: %v", r.file, name, silent[name], resolved[name])
	}
}

// Each alert has a severity, a description, and an absolute link to a section of the runbook that
// says what to do and names the alert. All links have the same base: make runbook-url changes it.
func TestAlerts_LinkToTheRunbook(t *testing.T) {
	linked, bases := map[string][]string{}, map[string]bool{}
	for _, r := range rules(t) {
		s := r.Labels["severity"]
		expect.That(t, s == "ticket" || s == "page", "%s: %s has the severity %q, want ticket or page", r.file, r.Alert, s)
		base, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		_, ok := runbook.At(anchor)
		expect.That(t, ok, "%s: %s links to %q, which the runbook does not have", r.file, r.Alert, anchor)
		if bases[base] = true; !slices.Contains(linked[anchor], r.Alert) {
			linked[anchor] = append(linked[anchor], r.Alert)
		}
		expect.That(t, r.Annotations["summary"] != "" && r.Annotations["description"] != "", "%s: %s has no summary or no description", r.file, r.Alert)
	}
	for base := range bases {
		if u, err := url.Parse(base); len(bases) > 1 || err != nil || !u.IsAbs() || u.Host == "" {
			t.Errorf("the links to the runbook begin with %v; want one absolute URL", slices.Sorted(maps.Keys(bases)))
		}
	}
	for _, s := range runbook.Sections() {
		diff := cmp.Diff(slices.Sorted(slices.Values(s.Alerts)), slices.Sorted(slices.Values(linked[s.Anchor])))
		expect.That(t, diff == "", "section %q and the alerts that link to it (-named +linked):\n%s", s.Title, diff)
	}
}

// Each section of the runbook but the first says the same things in the same order: what an alert or
// a procedure means, what to do, and how to verify that it is over.
func TestRunbook_SectionsHaveTheSameParts(t *testing.T) {
	n := len(runbook.Sections())
	expect.That(t, n >= 30, "the runbook has %d sections only", n)
	seen := map[string]bool{}
	for _, s := range runbook.Sections() {
		var have []string
		for _, p := range s.Parts() {
			have = append(have, p.Name)
			expect.That(t, strings.TrimSpace(p.Text) != "", "section %q: the part %s is empty", s.Title, p.Name)
		}
		want := []string{"Meaning", "Act", "Verify"}
		expect.That(t, slices.Equal(have, want) || s.Anchor == "first-look", "section %q has the parts %q, want %q", s.Title, have, want)
		expect.That(t, !seen[s.Anchor], "the runbook has two sections %q", s.Title)
		seen[s.Anchor] = true
	}
}

// A rule for a metric that does not exist never fires, and a query of the autoscaler for one scales nothing.
func TestAlerts_UseExistingMetrics(t *testing.T) {
	have, queries := described(t), map[string]string{}
	for name, r := range rules(t) {
		queries[name] = r.Expr
	}
	for _, file := range []string{"autoscaling.yaml", "_helpers.tpl"} {
		queries[file] = string(must.Get(os.ReadFile("helm/orderclose/templates/" + file))(t))
	}
	for where, query := range queries {
		names := regexp.MustCompile(`\borderclose_[a-z_]+`).FindAllString(query, -1)
		expect.That(t, len(names) != 0, "%s uses no metric of orderclose", where)
		for _, name := range names {
			base := name
			for _, suffix := range []string{"_sum", "_count", "_bucket"} {
				base = strings.TrimSuffix(base, suffix)
			}
			expect.That(t, have[name] || have[base], "%s uses %s, which no process exports", where, name)
		}
	}
}

// described returns the names of all metrics that processes with all roles register, including those without a value yet.
func described(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	run := func(sections string, roles ...pipeline.Role) {
		synctest.Test(t, func(t *testing.T) {
			taken, descs := prometheus.NewRegistry(), make(chan *prometheus.Desc, 10_000)
			servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
			defer servers.Close()
			c := must.Get(servers.Connect("all"))(t)
			defer c.Close()
			topics := append(must.Get(os.ReadFile("../topics.yaml"))(t), sections...)
			cfg := must.Get(pipeline.Parse("topics.yaml", topics))(t)
			app := must.Get(pipeline.New(pipeline.Options{
				Config: cfg, Connections: c, Registerer: taken,
				Secrets: pipeline.Secrets{Webhook: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
			}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // the metrics are registered before the roles begin
			must.Do(t, app.Run(ctx, roles...))
			taken.Describe(descs)
			close(descs)
			for d := range descs {
				names[name.FindStringSubmatch(d.String())[1]] = true
			}
		})
	}
	run("\n", pipeline.AllRoles()...)
	run("\nwebhook: {url: https://shop.example/events}\n", pipeline.Webhook)
	return names
}

// The example is valid, routes each severity to its receivers, and inhibits alerts that exist.
func TestAlertmanager_RoutesEverySeverity(t *testing.T) {
	const file = "alerts/alertmanager.yml"
	tool(t, "amtool", "check-config", file)
	for severity, receiver := range map[string]string{"page": "phone,team", "ticket": "mail,team"} {
		tool(t, "amtool", "config", "routes", "test", "--config.file="+file, "--verify.receivers="+receiver, "severity="+severity, "alertname=OrdercloseRoleMissing")
	}
	var c struct {
		Inhibit []map[string][]string `yaml:"inhibit_rules"`
	}
	must.Do(t, yaml.Unmarshal(must.Get(os.ReadFile(file))(t), &c))
	all := rules(t)
	for _, name := range regexp.MustCompile(`Orderclose\w+`).FindAllString(fmt.Sprint(c.Inhibit), -1) {
		_, there := all[name]
		expect.That(t, there, "an inhibition names the unknown alert %s", name)
	}
}

// The examples of a watchdog and of a reader of events in the documents are what Prometheus and Alertmanager accept.
func TestAlertmanager_TheWatchdogOfTheDocumentIsValid(t *testing.T) {
	var blocks []string
	for _, document := range []string{"alerting", "wire"} {
		text := must.Get(os.ReadFile("../docs/" + document + ".md"))(t)
		for _, m := range regexp.MustCompile("(?sm)^ *```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			blocks = append(blocks, string(m[1]))
		}
	}
	must.That(t, len(blocks) == 3, "the documents have %d blocks of YAML, want a rule, a route and the rule of a reader", len(blocks))
	t.Chdir(t.TempDir())
	route := strings.Replace(blocks[1], "route:\n", "route:\n  receiver: heartbeat\n", 1)
	for name, text := range map[string]string{"rules.yml": blocks[0], "alertmanager.yml": route, "reader.yml": blocks[2]} {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	tool(t, "promtool", "check", "rules", "rules.yml", "reader.yml")
	tool(t, "amtool", "check-config", "alertmanager.yml")
}

// Each message of Alertmanager and of its bridges has the link to the runbook. Titles, and a call that reads aloud, have the name of the alert alone.
func TestAlertmanager_MessagesLinkToTheRunbook(t *testing.T) {
	const name, link = "OrdercloseRoleMissing", "https://wiki.example/runbook#no-relay"
	labels, annotations := map[string]string{"alertname": name}, map[string]string{"summary": "No relay runs", "runbook_url": link}
	data := map[string]any{ // as Alertmanager's templates and dingtalk.yml see it, and as the JSON of a webhook has it
		"Alerts": []any{map[string]any{"Labels": labels, "Annotations": annotations}}, "GroupLabels": labels,
		"alerts": []any{map[string]any{"labels": labels, "annotations": annotations}}, "groupLabels": labels,
	}
	linked := 0
	var check func(file string, n *yaml.Node)
	check = func(file string, n *yaml.Node) {
		for _, part := range n.Content {
			check(file, part)
		}
		if !strings.Contains(n.Value, "{{") {
			return
		}
		var b strings.Builder
		must.Do(t, must.Get(template.New(file).Parse(n.Value))(t).Execute(&b, data))
		if strings.Contains(b.String(), link) {
			linked++
		}
		expect.That(t, strings.Contains(b.String(), link) || strings.Contains(b.String(), name), "%s: a message has no link: %s", file, b.String())
		// PrometheusAlert puts the text into JSON without escaping it.
		expect.That(t, file != "prometheusalert.json" || !strings.ContainsAny(b.String(), "\"\\\n"), "%s breaks the JSON of the provider: %s", file, b.String())
	}
	texts := ""
	for _, file := range []string{"alertmanager.yml", "dingtalk.yml", "prometheusalert.json"} {
		var n yaml.Node
		text := must.Get(os.ReadFile("alerts/" + file))(t)
		must.Do(t, yaml.Unmarshal(text, &n))
		withoutAliases(&n)
		check(file, &n)
		texts += string(text)
	}
	expect.Equal(t, linked, 4, "messages with a link: WeCom, mail, DingTalk and SMS")
	for _, m := range regexp.MustCompile(`/dingtalk/(\w+)/send|tpl=([\w-]+)`).FindAllStringSubmatch(texts, -1) {
		target, tpl := m[1], m[2]
		exists := target != "" && strings.Contains(texts, "\n  "+target+":\n") || tpl != "" && strings.Contains(texts, `"Tplname": "`+tpl+`"`)
		expect.That(t, exists, "a receiver sends to %s, which its bridge does not have", m[0])
	}
}
