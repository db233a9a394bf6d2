package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// These tests compare what the files of k8s and systemd say about orderclose with its code. The files
// of k8s are generated from the Helm chart; kubetest tests both as objects of Kubernetes.

// manifest is an object of Kubernetes, with the fields that these tests read.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Command, Args []string
					Ports         []struct {
						ContainerPort int `yaml:"containerPort"`
					}
					Liveness     *probe `yaml:"livenessProbe"`
					Readiness    *probe `yaml:"readinessProbe"`
					VolumeMounts []struct {
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
			}
		}
		Triggers []struct{ Metadata map[string]string }
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

func manifests(t *testing.T, names ...string) []manifest {
	t.Helper()
	var all []manifest
	for _, name := range names {
		text := must.Get(os.ReadFile("k8s/" + name))(t)
		d := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var m manifest
			err := d.Decode(&m)
			if err == io.EOF {
				break
			}
			must.That(t, err == nil, "%s: %v", name, err)
			all = append(all, m)
		}
	}
	return all
}

// environment reads the lines NAME=value of a file.
func environment(t *testing.T, name string) map[string]string {
	t.Helper()
	text := must.Get(os.ReadFile(name))(t)
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			env[name] = value
		}
	}
	return env
}

// knownVariables returns the names of all variables that orderclose reads.
func knownVariables(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	lookup := func(name string) (string, bool) { known[name] = true; return "", false }
	must.Get(config.FromEnviron(lookup))(t)
	must.Get(config.FromEnviron(lookup, room.Variables(rooms.All())...))(t)
	must.Get(config.ConsoleFromEnviron(lookup))(t)
	for name := range known { // a variable that was replaced is read only to be refused
		lookup := func(asked string) (string, bool) { return map[bool]string{true: "x"}[asked == name], asked == name }
		_, err := config.FromEnviron(lookup)
		_, ofConsole := config.ConsoleFromEnviron(lookup)
		if strings.Contains(fmt.Sprint(err, ofConsole), "does not read this any more") {
			delete(known, name)
		}
	}
	return known
}

var notSet = regexp.MustCompile(`(ORDERCLOSE_[A-Z_]+) is not set`)

// requiredVariables runs a command line without any variable, and returns those that it asks for. It fails if the command line is wrong in another way.
func requiredVariables(t *testing.T, topics string, args []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var errs bytes.Buffer
	none := func(string) (string, bool) { return "", false }
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/orderclose/topics.yaml", topics)
	}
	code := cli.Main(ctx, cli.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs, LookupEnv: none, Rooms: rooms.All()}, args)
	var names []string
	for _, m := range notSet.FindAllStringSubmatch(errs.String(), -1) {
		names = append(names, m[1])
	}
	expect.That(t, code == int(cli.Usage) && len(names) != 0, "orderclose %v exits with %d: %s", args, code, errs.String())
	return names
}

// stopTimeout returns how long a process may take to stop.
func stopTimeout(t *testing.T) time.Duration {
	t.Helper()
	text := must.Get(os.ReadFile("../internal/cli/run.go"))(t)
	m := regexp.MustCompile(`const stopTimeout = (\d+) \* time\.Second`).FindSubmatch(text)
	must.That(t, m != nil, "internal/cli/run.go has no stopTimeout")
	d := must.Get(time.ParseDuration(string(m[1]) + "s"))(t)
	return d
}

// The command line accepts each container's arguments, and the pod has each variable that they
// need: in the shared environment, or as a file of a Secret that is mounted.
func TestKubernetes_ContainersRunWithWhatTheyNeed(t *testing.T) {
	env, known := environment(t, "k8s/base/orderclose.env"), knownVariables(t)
	for name := range env {
		expect.That(t, known[name], "orderclose does not know the variable %s", name)
	}
	health := must.Get(os.ReadFile("../pipeline/health.go"))(t)
	ran := map[string]bool{}
	for _, m := range manifests(t, "base/parts.yaml", "components/payments/parts.yaml") {
		pod := m.Spec.Template.Spec
		for _, c := range pod.Containers {
			ran[strings.Join(append(c.Command, c.Args[:len(c.Args)-1]...), " ")] = true
			var required []string
			if c.Command == nil { // the programs of modules of their own check what they need
				required = requiredVariables(t, "k8s/base/topics.yaml", c.Args)
			}
			for _, name := range required {
				file := env[name+"_FILE"]
				mounted := slices.ContainsFunc(c.VolumeMounts, func(v struct {
					MountPath string `yaml:"mountPath"`
				}) bool {
					return strings.HasPrefix(file, v.MountPath+"/")
				})
				// The user adds the variables of a room to the environment; the chart demands them.
				expect.That(t, env[name] != "" || mounted || slices.Contains(room.Variables(rooms.All()), name),
					"%s: orderclose %v needs %s, which the pod does not have", m.Metadata.Name, c.Args, name)
			}
			if d := time.Duration(pod.Grace) * time.Second; d <= stopTimeout(t)+time.Second {
				t.Errorf("%s is killed after %v, and may need %v and a second to stop", m.Metadata.Name, d, stopTimeout(t))
			}
			for _, p := range []*probe{c.Liveness, c.Readiness} {
				if p != nil && !strings.Contains(string(health), `"GET `+p.HTTPGet.Path+`"`) {
					t.Errorf("%s: no process serves %s", m.Metadata.Name, p.HTTPGet.Path)
				}
			}
			for _, p := range c.Ports {
				if _, port, _ := strings.Cut(env["ORDERCLOSE_LISTEN"], ":"); p.ContainerPort != 9464 || port != "9464" {
					t.Errorf("%s: the port is %d, and orderclose listens on %s", m.Metadata.Name, p.ContainerPort, env["ORDERCLOSE_LISTEN"])
				}
			}
		}
	}
	for _, want := range []string{"migrate", "topics apply", "run relay", "run closer", "run compensator", "run outbox", "orderclose-payments"} {
		expect.That(t, ran[want], "no container runs orderclose %s: %v", want, slices.Sorted(maps.Keys(ran)))
	}
}

// The console and roles of rooms are in the chart only. With its environment the console starts on the
// loopback and behind its proxy, and a role needs only what its pod has.
func TestKubernetes_ConsoleAndRoomsRunWithWhatTheyNeed(t *testing.T) {
	text := must.Get(os.ReadFile("helm/orderclose/values.yaml"))(t)
	var values struct {
		Env     map[string]string
		Console struct{ Env map[string]string }
	}
	must.Do(t, yaml.Unmarshal(text, &values))
	for name, more := range map[string]map[string]string{
		"on the loopback": {},
		"with its proxy": {config.EnvConsoleProxies: "127.0.0.1", config.EnvConsoleUserHeader: "X-Forwarded-Email", config.EnvConsoleHosts: "console.example",
			config.EnvConsoleOperators: "ann@shop.example"},
	} {
		env := maps.Clone(values.Console.Env)
		maps.Copy(env, more)
		c, err := config.ConsoleFromEnviron(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		expect.That(t, err == nil && c.OnLoopback() && strings.HasSuffix(c.Listen, ":9465"), "%s: %v, %v", name, c, err)
	}
	expect.Equal(t, values.Env[config.EnvDSN+"_FILE"], "/run/secrets/database/dsn", "the file of the DSN")
	for _, r := range rooms.All() {
		for _, role := range r.Roles {
			for _, name := range requiredVariables(t, "k8s/base/topics.yaml", []string{"run", role.Name, "--config=/etc/orderclose/topics.yaml"}) {
				has := role.Database && name == config.EnvDSN || role.Kafka && name == config.EnvBrokers || slices.Contains(r.Variables, name)
				expect.That(t, has, "the role %s needs %s, which its pod does not have", role.Name, name)
			}
		}
	}
}

// The files and documents that a user copies name variables that exist.
func TestKubernetes_VariablesExist(t *testing.T) {
	known := knownVariables(t)
	for _, name := range []string{
		"helm/orderclose/values.yaml", "k8s/example/kustomization.yaml", "kubetest/chart_test.go", "systemd/README.md", "../docs/kubernetes.md",
	} {
		text := must.Get(os.ReadFile(name))(t)
		for _, variable := range regexp.MustCompile(`ORDERCLOSE_[A-Z_]+`).FindAllString(string(text), -1) {
			expect.That(t, known[variable], "%s: orderclose does not know the variable %s", name, variable)
		}
	}
}

func TestKubernetes_FilesAreValid(t *testing.T) {
	for _, name := range []string{"k8s/base/topics.yaml", "k8s/example/topics.yaml"} {
		expect.NoError(t, expect.Err(config.Load(name)))
	}
}

// Closers and relays are scaled by metrics that processes register.
func TestKubernetes_ScalesByExistingMetrics(t *testing.T) {
	t.Chdir("alerts") // described reads topics.yaml relative to it
	have := described(t)
	t.Chdir("..")
	var names []string
	for _, m := range manifests(t, "components/autoscaling/scaledobjects.yaml") {
		for _, trigger := range m.Spec.Triggers {
			names = append(names, metricName.FindAllString(trigger.Metadata["query"], -1)...)
		}
	}
	expect.That(t, len(names) != 0, "no query names a metric")
	for _, name := range names {
		expect.That(t, have[name], "a query uses %s, which no process exports", name)
	}
}
