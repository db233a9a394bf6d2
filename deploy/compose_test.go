package deploy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// composeFile is a file of compose, with the keys that these tests read. What it names and does not have, docker compose refuses itself.
type composeFile struct {
	Services map[string]service
	Secrets  map[string]struct{ File string }
}

type service struct {
	Image                            string
	Command, Secrets, Volumes, Ports []string
	Environment                      map[string]string
	ReadOnly                         bool     `yaml:"read_only"`
	CapDrop                          []string `yaml:"cap_drop"`
	SecurityOpt                      []string `yaml:"security_opt"`
	Healthcheck                      any
}

// local is the image of the services that run orderclose.
const local = "orderclose:local"

// composed runs a test in the folder compose for each file: that with everything, and those of sweeps alone.
func composed(t *testing.T, test func(t *testing.T, f composeFile)) {
	t.Helper()
	t.Chdir("compose")
	for _, name := range []string{"compose.yaml", "sweeper.yaml", "sweeper-postgres.yaml"} {
		var f composeFile
		must.Do(t, yaml.Unmarshal(must.Get(os.ReadFile(name))(t), &f))
		t.Run(name, func(t *testing.T) { test(t, f) })
	}
}

// reaches requires a service of that name whose settings have that port. MariaDB has its usual one.
func (f composeFile) reaches(t *testing.T, from, address string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	s, ok := f.Services[host]
	listens := strings.Contains(fmt.Sprint(s.Command, s.Environment), port) || address == "mariadb:3306"
	expect.That(t, err == nil && ok && listens, "%s uses %s, where no service listens", from, address)
}

// Images have versions. A service writes to volumes alone, only this machine reaches its ports, and orderclose itself has few rights and is watched.
func TestCompose_ServicesHaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	pinned := regexp.MustCompile(`^[a-z/-]+:v?\d+\.\d+`)
	composed(t, func(t *testing.T, f composeFile) {
		for name, s := range f.Services {
			expect.That(t, s.Image == local || pinned.MatchString(s.Image), "%s: the image %s has no fixed version", name, s.Image)
			for _, v := range s.Volumes {
				if from, _, _ := strings.Cut(v, ":"); strings.HasPrefix(from, ".") {
					_, err := os.Stat(from)
					expect.That(t, err == nil && strings.HasSuffix(v, ":ro"), "%s mounts %s, and could write to it: %v", name, v, err)
				}
			}
			for _, p := range s.Ports {
				inner, ok := strings.CutPrefix(p, "127.0.0.1:")
				_, inner, _ = strings.Cut(inner, ":")
				expect.That(t, ok, "%s publishes %s; want 127.0.0.1:port:port", name, p)
				f.reaches(t, "the port of "+name, name+":"+inner)
			}
			expect.That(t, s.Image != local || s.ReadOnly && slices.Contains(s.CapDrop, "ALL") && slices.Contains(s.SecurityOpt, "no-new-privileges:true") &&
				s.Healthcheck != nil, "%s has too many rights, or is not monitored", name)
		}
	})
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(content(t, "Dockerfile"), -1) {
		expect.That(t, from[1] == "scratch" || pinned.MatchString(from[1]), "Dockerfile: the image %s has no fixed version", from[1])
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

// The parts know every variable that they get, find every server with them, and have secrets as files.
func TestCompose_ThePartsAcceptTheirEnvironment(t *testing.T) {
	known := knownVariables(t)
	composed(t, func(t *testing.T, f composeFile) {
		dir := secrets(t)
		for name, s := range f.Services {
			if s.Image != local {
				continue
			}
			given := map[string]string{}
			for variable, value := range s.Environment {
				expect.That(t, known[variable], "%s: orderclose does not know the variable %s", name, variable)
				if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok {
					expect.That(t, slices.Contains(s.Secrets, secret), "%s: %s names the secret %s, which is not mounted", name, variable, secret)
					value = filepath.Join(dir, secret)
				}
				given[variable] = value
			}
			servers, err := environ.Read(func(name string) (string, bool) { v, ok := given[name]; return v, ok })
			listen := given[environ.EnvListen]
			expect.That(t, err == nil && (listen == "" || strings.HasPrefix(listen, "0.0.0.0:")), "%s listens on %s: %v", name, listen, err)
			for _, broker := range servers.Brokers {
				f.reaches(t, name, broker)
			}
			db := f.Services["mariadb"].Environment
			dsn := db["MARIADB_USER"] + ":" + content(t, dir+"/db_password") + "@tcp(mariadb:3306)/" + db["MARIADB_DATABASE"]
			if pg, is := f.Services["postgres"]; is {
				db = pg.Environment
				dsn = "postgres://" + db["POSTGRES_USER"] + ":" + content(t, dir+"/db_password") + "@postgres:5432/" + db["POSTGRES_DB"] + "?sslmode=disable"
			}
			expect.That(t, servers.DSN == "" || servers.DSN == dsn, "%s: the DSN is not that of the server", name)
			redis := "redis://:" + content(t, dir+"/redis_password") + "@redis:6379/0"
			expect.That(t, servers.RedisURL == "" || servers.RedisURL == redis, "%s: the URL is not that of Redis", name)
			if servers.RedisURL != "" {
				f.reaches(t, name, "redis:6379")
			}
		}
		kafka := f.Services["kafka"]
		for _, l := range strings.FieldsFunc(kafka.Environment["KAFKA_ADVERTISED_LISTENERS"], func(r rune) bool { return r == ',' }) {
			_, address, _ := strings.Cut(l, "://")
			if published, ok := strings.CutPrefix(address, "127.0.0.1:"); ok {
				expect.That(t, slices.Contains(kafka.Ports, address+":"+published), "%s is not published", l)
			} else {
				f.reaches(t, "the listener "+l, address)
			}
		}
	})
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

func content(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(name))(t))
}

// Files that were in the folder keep their modes, and a folder that others can enter gets no secrets.
func TestSecrets_OfOthersStayPrivate(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	must.Do(t, errors.Join(os.WriteFile(other, nil, 0o600), os.Chmod(dir, 0o755)))
	out, err := exec.Command("compose/secrets.sh", dir).CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), "chmod 700") && len(must.Get(os.ReadDir(dir))(t)) == 1, "in a folder that is open: %v %s", err, out)
	must.Do(t, os.Chmod(dir, 0o700))
	out, err = exec.Command("compose/secrets.sh", dir).CombinedOutput()
	expect.That(t, err == nil && must.Get(os.Stat(other))(t).Mode() == 0o600, "the other file, %v: %v %s", must.Get(os.Stat(other))(t).Mode(), err, out)
}

// A second run of secrets.sh changes nothing, and git ignores what it creates. A service has the secrets that it reads, and no others.
func TestSecrets_AreCreatedOnceAndUsed(t *testing.T) {
	composed(t, func(t *testing.T, f composeFile) {
		dir := secrets(t)
		before := content(t, dir+"/db_dsn")
		out, err := exec.Command("./secrets.sh", dir).CombinedOutput()
		expect.That(t, err == nil && content(t, dir+"/db_dsn") == before, "a second run changes them: %v %s", err, out)
		settings := map[string]string{ // of the services whose own file names secrets
			"alertmanager": content(t, "../alerts/alertmanager.yml"), "payments": content(t, "config/payments.yaml"),
		}
		for name, s := range f.Services {
			for _, secret := range s.Secrets {
				want := "/run/secrets/" + secret
				expect.That(t, strings.Contains(fmt.Sprint(s.Environment, s.Command, settings[name]), want), "%s does not read %s", name, want)
			}
		}
		for name, s := range f.Secrets {
			expect.That(t, s.File == "./secrets/"+name && content(t, dir+"/"+name) != "", "secrets.sh does not create %s", s.File)
		}
	})
	expect.That(t, strings.Contains(content(t, "../../.gitignore"), "/deploy/compose/secrets/\n"), "secrets could be committed")
}

func TestPrometheus_ScrapesEveryPartAndReadsTheRules(t *testing.T) {
	var f composeFile
	var p struct {
		Rules    []string `yaml:"rule_files"`
		Alerting struct {
			Alertmanagers []struct {
				Static []struct{ Targets []string } `yaml:"static_configs"`
			}
		}
		Scrape []struct {
			DNS []struct {
				Names []string
				Port  string
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	must.Do(t, yaml.Unmarshal([]byte(content(t, "compose/compose.yaml")), &f))
	must.Do(t, yaml.Unmarshal([]byte(content(t, "compose/prometheus.yml")), &p))
	scraped := p.Scrape[0].DNS[0]
	for _, name := range scraped.Names {
		f.reaches(t, "Prometheus", net.JoinHostPort(name, scraped.Port))
	}
	for name, s := range f.Services {
		expect.That(t, s.Environment["ORDERCLOSE_LISTEN"] == "" || slices.Contains(scraped.Names, name), "%s is not scraped", name)
	}
	f.reaches(t, "Prometheus", p.Alerting.Alertmanagers[0].Static[0].Targets[0])
	mounted := "../helm/orderclose/alerts:" + filepath.Dir(p.Rules[0]) + ":ro"
	expect.That(t, slices.Contains(f.Services["prometheus"].Volumes, mounted), "rules are read from %v, but not mounted there", p.Rules)
	tool(t, "promtool", "check", "config", "compose/prometheus.yml")
}
