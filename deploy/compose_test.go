package deploy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// file is compose.yaml, with the parts of the specification that it uses. Anything else in it is an error.
type file struct {
	Name     string
	Services map[string]service
	Volumes  map[string]struct{}
	Secrets  map[string]struct{ File string }

	// Shared by the services.
	Part        any `yaml:"x-part"`
	OneShot     any `yaml:"x-one-shot"`
	Prepared    any `yaml:"x-prepared"`
	Environment any `yaml:"x-environment"`
}

type service struct {
	Image               string
	Build               *struct{ Context, Dockerfile string }
	Entrypoint, Command []string
	Profiles            []string
	DependsOn           map[string]struct{ Condition string } `yaml:"depends_on"`

	Environment    map[string]string
	Secrets        []string
	Volumes, Ports []string

	Restart     string
	StopGrace   string   `yaml:"stop_grace_period"`
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Healthcheck *struct {
		Test              []string
		Interval, Timeout string
		Start             string `yaml:"start_period"`
		Retries           int
		Disable           bool
	}
}

// parts returns the services that run orderclose.
func (f *file) parts() map[string]service {
	all := map[string]service{}
	for name, s := range f.Services {
		if s.Image == "orderclose:local" {
			all[name] = s
		}
	}
	return all
}

// composed returns the files of the folder: that with everything, and that of sweeps alone.
func composed(t *testing.T) (files []*file) {
	t.Helper()
	for _, name := range []string{"compose.yaml", "sweeper.yaml"} {
		var f file
		decode(t, name, &f)
		files = append(files, &f)
	}
	return files
}

// listens returns the ports on which a service listens by its own settings.
func listens(t *testing.T, name string, s service) []string {
	t.Helper()
	var addresses []string
	switch {
	case s.Environment["ORDERCLOSE_LISTEN"] != "":
		addresses = []string{s.Environment["ORDERCLOSE_LISTEN"]}
	case name == "kafka":
		for _, l := range strings.Split(s.Environment["KAFKA_LISTENERS"], ",") {
			_, address, _ := strings.Cut(l, "://")
			addresses = append(addresses, address)
		}
	case name == "mariadb":
		return []string{"3306"}
	case name == "redis":
		return regexp.MustCompile(`--port (\d+)`).FindStringSubmatch(strings.Join(s.Command, " "))[1:]
	default:
		for _, c := range s.Command {
			if address, ok := strings.CutPrefix(c, "--web.listen-address="); ok {
				addresses = append(addresses, address)
			}
		}
	}
	var ports []string
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		expect.That(t, err == nil && host == "0.0.0.0", "%s listens on %q: other services cannot reach it", name, a)
		ports = append(ports, port)
	}
	return ports
}

// reaches requires that the service of that name listens on that port.
func reaches(t *testing.T, f *file, from, address string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	must.That(t, err == nil, "%s: %v", from, err)
	s, ok := f.Services[host]
	expect.That(t, ok && slices.Contains(listens(t, host, s), port), "%s uses %s, where no service listens", from, address)
}

func TestCompose_EverythingItNamesExists(t *testing.T) {
	t.Chdir("compose")
	for _, f := range composed(t) {
		everythingExists(t, f)
	}
}

func everythingExists(t *testing.T, f *file) {
	t.Helper()
	used := map[string]bool{}
	for name, s := range f.Services {
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if !strings.HasPrefix(from, ".") {
				_, ok := f.Volumes[from]
				expect.That(t, ok, "%s: the volume %s does not exist", name, from)
				used[from] = true
				continue
			}
			_, err := os.Stat(from)
			expect.That(t, err == nil, "%s mounts %s: %v", name, from, err)
			expect.That(t, strings.HasSuffix(v, ":ro"), "%s could write to %s", name, from)
		}
		for other := range s.DependsOn {
			_, ok := f.Services[other]
			expect.That(t, ok, "%s depends on %s, which does not exist", name, other)
			if c := s.DependsOn[other].Condition; c == "service_healthy" && f.Services[other].Healthcheck == nil {
				t.Errorf("%s waits until %s is healthy, but that has no health check", name, other)
			}
		}
		if s.Build != nil {
			for _, path := range []string{s.Build.Context, filepath.Join(s.Build.Context, s.Build.Dockerfile)} {
				_, err := os.Stat(path)
				expect.That(t, err == nil, "%s: %v", name, err)
			}
		}
	}
	for v := range f.Volumes {
		expect.That(t, used[v], "the volume %s is not used", v)
	}
}

func TestCompose_ImagesHaveVersions(t *testing.T) {
	t.Chdir("compose")
	pinned := regexp.MustCompile(`^[a-z/-]+:v?\d+\.\d+`)
	for _, f := range composed(t) {
		for name, s := range f.Services {
			expect.That(t, s.Image == "orderclose:local" || pinned.MatchString(s.Image), "%s: the image %s has no fixed version", name, s.Image)
		}
	}
	dockerfile := must.Get(os.ReadFile("Dockerfile"))(t)
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(dockerfile), -1) {
		if from[1] != "scratch" && !pinned.MatchString(from[1]) {
			t.Errorf("Dockerfile: the image %s has no fixed version", from[1])
		}
	}
}

// Git must find every tracked file in the build's context. Otherwise the version of the image has no revision, or ends with +dirty.
func TestCompose_TheBuildContextLacksOnlyWhatGitIgnores(t *testing.T) {
	lists := map[string][]string{"../.gitignore": nil, "compose/Dockerfile.dockerignore": nil}
	for name := range lists {
		text := must.Get(os.ReadFile(name))(t)
		for line := range strings.Lines(string(text)) {
			if pattern := strings.Trim(strings.TrimPrefix(strings.TrimSpace(line), "**/"), "/"); pattern != "" && pattern[0] != '#' {
				lists[name] = append(lists[name], pattern)
			}
		}
	}
	expect.Same(t, lists["compose/Dockerfile.dockerignore"], lists["../.gitignore"], "the context lacks other files than git ignores")
}

// Each published port is one that the service listens on, and only this machine can reach it.
func TestCompose_PublishedPortsAreListenedOnAndLocal(t *testing.T) {
	t.Chdir("compose")
	for _, f := range composed(t) {
		portsAreLocal(t, f)
	}
}

func portsAreLocal(t *testing.T, f *file) {
	t.Helper()
	taken := map[string]string{}
	for name, s := range f.Services {
		for _, p := range s.Ports {
			rest, ok := strings.CutPrefix(p, "127.0.0.1:")
			outer, inner, _ := strings.Cut(rest, ":")
			if !ok || !slices.Contains(listens(t, name, s), inner) {
				t.Errorf("%s publishes %s, and listens on %v; want 127.0.0.1:port:port", name, p, listens(t, name, s))
			}
			other := taken[outer]
			expect.That(t, other == "", "%s and %s both publish %s", name, other, outer)
			taken[outer] = name
		}
	}
	kafka := f.Services["kafka"].Environment
	if kafka == nil {
		return
	}
	for _, l := range strings.Split(kafka["KAFKA_ADVERTISED_LISTENERS"], ",") {
		listener, address, _ := strings.Cut(l, "://")
		if host, port, _ := net.SplitHostPort(address); host == "127.0.0.1" {
			expect.Equal(t, taken[port], "kafka", "%s is advertised as %s, which is not published", listener, address)
		} else {
			reaches(t, f, "listener "+listener, address)
		}
		expect.That(t, strings.Contains(","+kafka["KAFKA_LISTENERS"], ","+listener+"://"), "the advertised listener %s does not exist", listener)
	}
	_, voter, _ := strings.Cut(kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"], "@")
	reaches(t, f, "the quorum", voter)
}

// The parts know every variable that they get, and find every server with them.
func TestCompose_ThePartsAcceptTheirEnvironment(t *testing.T) {
	t.Chdir("compose")
	known := map[string]bool{}
	note := func(name string) (string, bool) { known[name] = true; return "", false }
	must.Get(environ.Read(note))(t)
	must.Get(environ.Read(note, room.Variables(rooms.All())...))(t)
	dir := secrets(t)
	for _, f := range composed(t) {
		partsAccept(t, f, dir, known)
	}
}

func partsAccept(t *testing.T, f *file, dir string, known map[string]bool) {
	t.Helper()
	for name, s := range f.parts() {
		given := map[string]string{}
		for variable, value := range s.Environment {
			expect.That(t, known[variable], "%s: orderclose does not know the variable %s", name, variable)
			if value == "${"+variable+":-}" {
				value = "http://service.example"
			}
			if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok {
				expect.That(t, slices.Contains(s.Secrets, secret), "%s: %s names the secret %s, which is not mounted", name, variable, secret)
				value = filepath.Join(dir, secret)
			}
			given[variable] = value
		}
		servers, err := environ.Read(func(name string) (string, bool) { v, ok := given[name]; return v, ok })
		expect.That(t, err == nil, "%s: %v", name, err)
		for _, broker := range servers.Brokers {
			reaches(t, f, name, broker)
		}
		if m := regexp.MustCompile(`^(\w+):(\w+)@tcp\(([^)]+)\)/(\w+)$`).FindStringSubmatch(servers.DSN); m != nil {
			db := f.Services["mariadb"].Environment
			expect.That(t, m[1] == db["MARIADB_USER"] && m[4] == db["MARIADB_DATABASE"] && m[2] == content(t, dir, "db_password"),
				"%s: the DSN is of %s in %s, the server is for %s in %s", name, m[1], m[4], db["MARIADB_USER"], db["MARIADB_DATABASE"])
			reaches(t, f, name, m[3])
		} else if servers.DSN != "" {
			t.Errorf("%s: the DSN cannot be read", name)
		}
		if m := regexp.MustCompile(`^redis://:(\w+)@([^/]+)/0$`).FindStringSubmatch(servers.RedisURL); m != nil {
			expect.Equal(t, m[1], content(t, dir, "redis_password"), "%s: the password of Redis differs", name)
			reaches(t, f, name, m[2])
		} else if servers.RedisURL != "" {
			t.Errorf("%s: the URL of Redis cannot be read", name)
		}
		expect.That(t, s.ReadOnly && len(s.CapDrop) != 0 && s.Healthcheck != nil, "%s has too many rights, or is not monitored", name)
	}
}

func TestCompose_TopicsYAMLIsValid(t *testing.T) {
	t.Chdir("compose")
	expect.NoError(t, expect.Err(config.Load("config/topics.yaml")))
}

// secrets runs secrets.sh and returns its folder.
func secrets(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secrets")
	out, err := exec.Command("./secrets.sh", dir).CombinedOutput()
	must.That(t, err == nil, "secrets.sh: %v\n%s", err, out)
	return dir
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
	return string(data)
}

func TestSecrets_AreCreatedOnce(t *testing.T) {
	t.Chdir("compose")
	dir := secrets(t)
	for _, f := range composed(t) {
		secretsAreUsed(t, f, dir)
	}
	before := content(t, dir, "db_dsn")
	if out, err := exec.Command("./secrets.sh", dir).CombinedOutput(); err != nil || content(t, dir, "db_dsn") != before {
		t.Errorf("a second run changes them: %v %s", err, out)
	}
	ignored, err := os.ReadFile("../../.gitignore")
	expect.That(t, err == nil && strings.Contains(string(ignored), "/deploy/compose/secrets/\n"), "secrets could be committed: %v", err)
}

func secretsAreUsed(t *testing.T, f *file, dir string) {
	t.Helper()
	used := map[string]bool{}
	settings := map[string]string{ // of the services whose own file names secrets
		"alertmanager": content(t, "../alerts", "alertmanager.yml"),
		"payments":     content(t, "config", "payments.yaml"),
	}
	for name, s := range f.Services {
		for _, secret := range s.Secrets {
			used[secret] = true
			_, ok := f.Secrets[secret]
			expect.That(t, ok, "%s: the secret %s does not exist", name, secret)
			want := "/run/secrets/" + secret
			expect.That(t, strings.Contains(fmt.Sprint(s.Environment, s.Command, settings[name]), want), "%s does not read %s", name, want)
		}
	}
	for name, s := range f.Secrets {
		expect.That(t, used[name], "the secret %s is not used", name)
		expect.That(t, s.File == "./secrets/"+name && content(t, dir, name) != "", "secrets.sh does not create %s", s.File)
	}
}

func TestPrometheus_ScrapesEveryPartAndReadsTheRules(t *testing.T) {
	t.Chdir("compose")
	f := composed(t)[0]
	var p struct {
		Global   map[string]string
		Rules    []string `yaml:"rule_files"`
		Alerting struct {
			Alertmanagers []struct {
				Static []struct{ Targets []string } `yaml:"static_configs"`
			}
		}
		Scrape []struct {
			Job string `yaml:"job_name"`
			DNS []struct {
				Names      []string
				Type, Port string
				Refresh    string `yaml:"refresh_interval"`
			} `yaml:"dns_sd_configs"`
			Static  []struct{ Targets []string } `yaml:"static_configs"`
			Relabel []map[string]any             `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	decode(t, "prometheus.yml", &p)
	scraped := map[string]bool{}
	for _, s := range p.Scrape {
		for _, d := range s.DNS {
			for _, name := range d.Names {
				scraped[name] = true
				reaches(t, f, "Prometheus", net.JoinHostPort(name, d.Port))
			}
		}
	}
	for name, s := range f.parts() {
		expect.That(t, s.Environment["ORDERCLOSE_LISTEN"] == "" || scraped[name], "%s is not scraped", name)
	}
	for _, a := range p.Alerting.Alertmanagers {
		for _, s := range a.Static {
			for _, target := range s.Targets {
				reaches(t, f, "Prometheus", target)
			}
		}
	}
	mounted := "../helm/orderclose/alerts:" + filepath.Dir(p.Rules[0]) + ":ro"
	expect.That(t, slices.Contains(f.Services["prometheus"].Volumes, mounted), "rules are read from %v, but not mounted there", p.Rules)
	tool(t, "promtool", "check", "config", "prometheus.yml")
}
