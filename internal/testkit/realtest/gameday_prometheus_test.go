package realtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// faster is by how much a game day divides the durations of the rules: a minute becomes a second.
const faster = 60

// prometheus is a Prometheus of a test's own, with the rules of the chart.
type prometheus struct {
	t    *testing.T
	dir  string
	url  string
	logs testkit.LogBuffer

	mu      sync.Mutex
	targets map[string]string // address by the name of a process
}

// startPrometheus starts Prometheus without targets. It ends with the test.
func startPrometheus(t *testing.T) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	must.That(t, err == nil, "no Prometheus: run deploy/native/install.sh promtool")
	p := &prometheus{t: t, dir: t.TempDir(), targets: map[string]string{}}
	p.write("prometheus.yml", `global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: ["*.rules.yml"]
scrape_configs:
  - job_name: orderclose
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}] # file events are not certain
`)
	names, err := filepath.Glob("../../../deploy/helm/orderclose/alerts/*.rules.yml")
	must.That(t, err == nil && len(names) != 0, "no rules: %v", err)
	for _, name := range names {
		data := must.Get(os.ReadFile(name))(t)
		p.write(filepath.Base(name), hurried(t, data))
	}
	p.scrape("", "")
	address := freeAddress(t)
	p.url = "http://" + address
	server := &process.Process{Name: program, Command: func() *exec.Cmd {
		cmd := exec.Command(program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address="+address, "--log.level=warn")
		cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, &p.logs, &p.logs
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		return cmd
	}}
	must.Do(t, server.Start())
	t.Cleanup(func() {
		server.Kill()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", p.logs.Tail(2000))
		}
	})
	return p
}

// hurried returns rules with all their durations divided: how long an expression must hold, and how often it is evaluated. Expressions stay as they are.
func hurried(t *testing.T, rules []byte) string {
	t.Helper()
	var document yaml.Node
	must.Do(t, yaml.Unmarshal(rules, &document))
	hurry(t, &document)
	out := must.Get(yaml.Marshal(&document))(t)
	return string(out)
}

func hurry(t *testing.T, n *yaml.Node) {
	t.Helper()
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && slices.Contains([]string{"for", "keep_firing_for", "interval"}, n.Content[i-1].Value) {
			d := must.Get(time.ParseDuration(child.Value))(t)
			child.Value = fmt.Sprintf("%dms", (d / faster).Milliseconds())
		}
		hurry(t, child)
	}
}

func (p *prometheus) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	must.Do(p.t, os.WriteFile(path+".new", []byte(text), 0o600))
	must.Do(p.t, os.Rename(path+".new", path))
}

// scrape adds a process to what is scraped. It stays there when it ends, as in production.
func (p *prometheus) scrape(part, address string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if part != "" {
		p.targets[part] = address
	}
	groups := []map[string]any{}
	for part, address := range p.targets {
		groups = append(groups, map[string]any{"targets": []string{address}, "labels": map[string]string{"part": part}})
	}
	data := must.Get(json.Marshal(groups))(p.t)
	p.write("targets.json", string(data))
}

// firing returns the annotations of the alerts that fire, by name, and their severity beside these. An alert that says
// by a label which of its conditions holds is also there by name/value.
func (p *prometheus) firing() (map[string]map[string]string, error) {
	var answer struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}
	if err := p.get("/api/v1/alerts", &answer); err != nil {
		return nil, err
	}
	all := map[string]map[string]string{}
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			all[a.Labels["alertname"]] = a.Annotations
			a.Annotations["severity"] = a.Labels["severity"]
			for _, label := range []string{"role", "what", "outbox"} {
				if value := a.Labels[label]; value != "" {
					all[a.Labels["alertname"]+"/"+value] = a.Annotations
				}
			}
		}
	}
	return all, nil
}

// up returns the number of processes that were scraped successfully.
func (p *prometheus) up() int {
	var answer struct{ Result []any }
	if err := p.get("/api/v1/query?query="+url.QueryEscape("up == 1"), &answer); err != nil {
		return 0
	}
	return len(answer.Result)
}

// value returns the result of a query, for the messages of a failed test.
func (p *prometheus) value(query string) string {
	var answer struct {
		Result []struct {
			Metric map[string]string
			Value  []any
		}
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer.Result)
}

func (p *prometheus) get(path string, data any) error {
	res, err := http.Get(p.url + path)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		return err
	}
	answer := struct {
		Status string
		Data   any
	}{Data: data}
	if err := json.Unmarshal(body.Bytes(), &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %w %s", path, err, strings.TrimSpace(body.String()))
	}
	return nil
}
