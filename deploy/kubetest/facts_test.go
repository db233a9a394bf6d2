package kubetest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// eachSet runs a test for each set of objects that somebody may install.
func eachSet(t *testing.T, test func(t *testing.T, all objects)) {
	t.Helper()
	for name, set := range map[string]func() objects{
		"chart":               func() objects { return rendered(t, small) },
		"chart, whole":        func() objects { return rendered(t, whole) },
		"chart, sweeps alone": func() objects { return rendered(t, sweepsAlone(t, "monitoring: {enabled: true}\n")) },
		"chart, all on":       func() objects { return rendered(t, allOn) },
	} {
		t.Run(name, func(t *testing.T) { test(t, set()) })
	}
}

func TestObjects_AreAcceptedByTheAPITypes(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		for _, o := range all {
			o.decode(t)
		}
	})
}

// The check of types refuses what the API server would refuse or ignore.
func TestObjects_ATypoIsAnError(t *testing.T) {
	for from, to := range map[string]string{"automountServiceAccountToken": "automountServiceAccounttoken", "minReplicaCount": "minReplicas",
		"relabelings": "relabelConfigs", "maxUnavailable: 1": "maxUnavailable: [1]"} {
		found := false
		for _, o := range rendered(t, allOn) {
			doc := o.text
			if !strings.Contains(doc, from) {
				continue
			}
			found = true
			one := objects{}
			one.add(t, "changed", strings.Replace(doc, from, to, 1))
			for _, o := range one {
				if _, err := o.check(t); err == nil {
					t.Errorf("%s is accepted in place of %s in %s %s", to, from, o.Kind, o.Name)
				}
			}
		}
		if !found {
			t.Errorf("no object has %s", from)
		}
	}
}

// What the Pod Security Standard "restricted" demands, and more.
func TestPods_HaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		for _, p := range all.pods(t) {
			s := p.Spec.SecurityContext
			if s == nil || !is(s.RunAsNonRoot) || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil ||
				s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: the pod runs as root, or without the default seccomp profile", p.of)
			}
			if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken || p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.HostIPC {
				t.Errorf("%s: the pod has a token, or a namespace of the node", p.of)
			}
			if all["ServiceAccount "+p.Spec.ServiceAccountName].Kind == "" {
				t.Errorf("%s: there is no ServiceAccount %q", p.of, p.Spec.ServiceAccountName)
			}
			for _, c := range p.Spec.Containers {
				s := c.SecurityContext
				if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !is(s.ReadOnlyRootFilesystem) ||
					s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 || is(s.Privileged) {
					t.Errorf("%s: the container has too many rights: %+v", p.of, s)
				}
				if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: the container requests %v, and is limited to %v", p.of, c.Resources.Requests, c.Resources.Limits)
				}
			}
		}
	})
}

func is(b *bool) bool { return b != nil && *b }

// The program accepts the arguments of each container with its topics.yaml, and the pod has each variable that the program asks for: in the
// environment, or as a file of a Secret that is mounted. The program serves the probes, and stops before the pod is killed.
func TestPods_RunTheProgramWithWhatItNeeds(t *testing.T) {
	program := filepath.Join(t.TempDir(), "orderclose")
	build := exec.Command("go", "build", "-o", program, "./cmd/orderclose")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile("../../internal/cli/run.go")
	must(t, err)
	stops, err := strconv.Atoi(string(regexp.MustCompile(`const stopTimeout = (\d+) \* time\.Second`).FindSubmatch(code)[1]))
	must(t, err)
	health, err := os.ReadFile("../../pipeline/health.go")
	must(t, err)
	ran := map[string]bool{}
	eachSet(t, func(t *testing.T, all objects) {
		topics := filepath.Join(t.TempDir(), "topics.yaml")
		must(t, os.WriteFile(topics, []byte(all["ConfigMap orderclose-topics"].content["data"].(values)["topics.yaml"].(string)), 0o600))
		for _, p := range all.pods(t) {
			c, env := p.Spec.Containers[0], values{}
			if grace := *p.Spec.TerminationGracePeriodSeconds; grace <= int64(stops)+1 {
				t.Errorf("%s is killed after %d s, and may need %d and one to stop", p.of, grace, stops)
			}
			for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if probe != nil && !strings.Contains(string(health), `"GET `+probe.HTTPGet.Path+`"`) {
					t.Errorf("%s: no process serves %s", p.of, probe.HTTPGet.Path)
				}
			}
			if ran[strings.Join(append(c.Command, c.Args[:len(c.Args)-1]...), " ")] = true; c.Command != nil {
				continue // the programs of modules of their own check what they need
			}
			for _, from := range c.EnvFrom {
				maps.Copy(env, all["ConfigMap "+from.ConfigMapRef.Name].content["data"].(values))
			}
			if listen := env["ORDERCLOSE_LISTEN"]; listen != "0.0.0.0:9464" || len(c.Ports) > 0 && c.Ports[0].ContainerPort != 9464 {
				t.Errorf("%s: orderclose listens on %v, and the ports are %v", p.of, listen, c.Ports)
			}
			run := exec.Command(program, strings.Split(strings.ReplaceAll(strings.Join(c.Args, " "), "/etc/orderclose/topics.yaml", topics), " ")...)
			run.Env = []string{}
			out, _ := run.CombinedOutput()
			asked := regexp.MustCompile(`(ORDERCLOSE_[A-Z_]+) is not set`).FindAllStringSubmatch(string(out), -1)
			if code := run.ProcessState.ExitCode(); code != 2 || len(asked) == 0 {
				t.Errorf("%s: orderclose %q exits with %d: %s", p.of, c.Args, code, out)
			}
			for _, m := range asked {
				file, _ := env[m[1]+"_FILE"].(string)
				mounted := slices.ContainsFunc(c.VolumeMounts, func(v core.VolumeMount) bool { return strings.HasPrefix(file, v.MountPath+"/") })
				if env[m[1]] == nil && !mounted {
					t.Errorf("%s needs %s, which the pod does not have", p.of, m[1])
				}
			}
		}
	})
	for _, want := range []string{"migrate", "topics apply", "run relay", "run closer", "run compensator", "run outbox", "orderclose-payments"} {
		if !ran[want] {
			t.Errorf("no container runs orderclose %s: %v", want, ran)
		}
	}
}

// Secrets are files, and only in the pods that need them. A mounted ConfigMap changes in a running pod only if no subPath is mounted.
func TestPods_MountWhatExistsReadOnly(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		for _, p := range all.pods(t) {
			volumes := map[string]core.VolumeSource{}
			for _, v := range p.Spec.Volumes {
				volumes[v.Name] = v.VolumeSource
			}
			for _, c := range p.Spec.Containers {
				for _, v := range c.Env {
					if want := c.Resources.Limits.Memory().Value() * 9 / 10; v.Name != "GOMEMLIMIT" || v.Value != fmt.Sprint(want) {
						t.Errorf("%s: the variable %s=%s is not in the shared environment, and not 90 %% of the limit of memory, %d", p.of, v.Name, v.Value, want)
					}
				}
				if len(c.Env) == 0 {
					t.Errorf("%s: GOMEMLIMIT is not set", p.of)
				}
				for _, from := range c.EnvFrom {
					if c.Name == "proxy" && from.SecretRef != nil { // oauth2-proxy reads its secrets from variables
						continue
					}
					if from.ConfigMapRef == nil || all["ConfigMap "+from.ConfigMapRef.Name].Kind == "" {
						t.Errorf("%s: the environment is of %+v", p.of, from)
					}
				}
				for _, m := range c.VolumeMounts {
					v, ok := volumes[m.Name]
					delete(volumes, m.Name)
					switch {
					case !ok || !m.ReadOnly || m.SubPath != "":
						t.Errorf("%s: the mount %+v has no volume, may be written, or does not change", p.of, m)
					case v.ConfigMap != nil && (all["ConfigMap "+v.ConfigMap.Name].Kind == "" || m.MountPath != "/etc/orderclose"):
						t.Errorf("%s: %s is mounted at %s", p.of, v.ConfigMap.Name, m.MountPath)
					case v.Secret != nil && (m.MountPath != "/run/secrets/"+m.Name || !is(v.Secret.Optional) || *v.Secret.DefaultMode != 0o440):
						t.Errorf("%s: the Secret %+v is mounted at %s", p.of, v.Secret, m.MountPath)
					case v.ConfigMap == nil && v.Secret == nil:
						t.Errorf("%s: the volume %s is neither a ConfigMap nor a Secret", p.of, m.Name)
					}
				}
			}
			for name := range volumes {
				t.Errorf("%s: the volume %s is not mounted", p.of, name)
			}
		}
	})
}

func TestPods_OfPartsAreProbedAndSpread(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		for _, d := range all.deployments(t) {
			c := d.Spec.Template.Spec.Containers[0]
			for name, p := range map[string]*core.Probe{"/-/healthy": c.LivenessProbe, "/-/ready": c.ReadinessProbe} {
				if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != name || p.HTTPGet.Port.StrVal != c.Ports[0].Name {
					t.Errorf("%s: the probe is %+v, want %s", d.Name, p, name)
				}
			}
			spread := d.Spec.Template.Spec.TopologySpreadConstraints
			if len(spread) != 2 {
				t.Errorf("%s is spread over %v", d.Name, spread)
			}
			for _, s := range spread {
				if !maps.Equal(s.LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels) {
					t.Errorf("%s: the spread counts the pods of %v", d.Name, s.LabelSelector.MatchLabels)
				}
			}
			for key, value := range d.Spec.Selector.MatchLabels {
				if d.Spec.Template.Labels[key] != value {
					t.Errorf("%s does not select its own pods", d.Name)
				}
			}
		}
	})
}

// Each Deployment has one budget, each pod a policy that denies what is not listed, and each policy, budget and Service selects pods that exist.
func TestSelectors_SelectExistingPods(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		pods := all.pods(t)
		budgets := map[string]int{}
		for _, b := range of[policy.PodDisruptionBudget](t, all) {
			chosen := selected(t, pods, b.Spec.Selector.MatchLabels, nil)
			if len(chosen) != 1 || b.Spec.MaxUnavailable.IntValue() != 1 {
				t.Errorf("the budget %s is for %v", b.Name, chosen)
			}
			for _, of := range chosen {
				budgets[of]++
			}
		}
		policies := map[string][]string{}
		for _, n := range of[networking.NetworkPolicy](t, all) {
			chosen := selected(t, pods, n.Spec.PodSelector.MatchLabels, n.Spec.PodSelector.MatchExpressions)
			if len(chosen) == 0 {
				t.Errorf("the policy %s is for no pod", n.Name)
			}
			for _, of := range chosen {
				policies[of] = append(policies[of], n.Name)
			}
			if !slices.Contains(n.Spec.PolicyTypes, networking.PolicyTypeEgress) { // to the console
				if len(n.Spec.Ingress) != 1 || len(n.Spec.Ingress[0].Ports) != 1 || len(n.Spec.Ingress[0].From) != 1 {
					t.Errorf("the policy %s admits %+v", n.Name, n.Spec.Ingress)
				}
				continue
			}
			if len(n.Spec.Egress) == 0 || slices.ContainsFunc(n.Spec.Egress, func(e networking.NetworkPolicyEgressRule) bool { return len(e.Ports) == 0 }) {
				t.Errorf("the policy %s allows any port, or none", n.Name)
			}
		}
		for _, p := range pods {
			if strings.HasPrefix(p.of, "Deployment") && budgets[p.of] != 1 {
				t.Errorf("%s has %d budgets", p.of, budgets[p.of])
			}
			// Each server whose Secret the pod mounts has a policy that lets the pod reach it, and the pod may reach no other.
			want := []string{""}
			for _, v := range p.Spec.Volumes {
				if v.Secret != nil {
					want = append(want, "-"+v.Name)
				}
			}
			_, part, _ := strings.Cut(p.of, " orderclose-")
			if _, is := all["Deployment orderclose-payments"]; is && slices.Contains([]string{"closer", "compensator", "sweeper"}, part) { // they ask it
				want = append(want, "-payments-callers")
			}
			if _, is := all["NetworkPolicy orderclose-console"]; is && part == "console" { // the Ingress controller reaches it
				want = append(want, "-console")
			}
			var have []string
			for _, name := range policies[p.of] {
				have = append(have, strings.TrimPrefix(name, "orderclose"))
			}
			slices.Sort(want)
			slices.Sort(have)
			if !slices.Equal(want, have) {
				t.Errorf("%s has the policies %q, want %q", p.of, have, want)
			}
		}
		for _, s := range of[core.Service](t, all) {
			chosen := selected(t, pods, s.Spec.Selector, nil)
			if s.Name != "orderclose" && !slices.Equal(chosen, []string{"Deployment " + s.Name}) || s.Name == "orderclose" && len(chosen) != len(pods) {
				t.Errorf("the Service %s selects %v", s.Name, chosen)
			}
		}
	})
}

// selected returns the owners of the pods that a selector selects.
func selected(t *testing.T, pods []pod, labels map[string]string, expressions []meta.LabelSelectorRequirement) []string {
	t.Helper()
	var chosen []string
	for _, p := range pods {
		matches := true
		for key, value := range labels {
			matches = matches && p.Labels[key] == value
		}
		for _, e := range expressions {
			if e.Operator != meta.LabelSelectorOpIn {
				t.Errorf("this test does not know the operator %s", e.Operator)
			}
			matches = matches && slices.Contains(e.Values, p.Labels[e.Key])
		}
		if matches {
			chosen = append(chosen, p.of)
		}
	}
	return chosen
}

// The rules are those of the folder alerts, every file and nothing else.
func TestRules_AreThoseOfAlerts(t *testing.T) {
	all := rendered(t, whole)
	files, err := filepath.Glob(filepath.Join(chartDir, "alerts/*.rules.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no rules: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		want := values{}
		must(t, yaml.Unmarshal(text, &want))
		id := "PrometheusRule orderclose-" + strings.TrimSuffix(filepath.Base(file), ".rules.yml")
		if have := all[id].content["spec"]; !reflect.DeepEqual(have, want) {
			t.Errorf("%s is not %s", id, file)
		}
	}
	if have := len(of[monitoring.PrometheusRule](t, all)); have != len(files) {
		t.Errorf("there are %d PrometheusRules and %d files", have, len(files))
	}
}

// Sweeps alone have their own rules, which the folder alerts/sweeper has. They need neither brokers nor Redis.
func TestSweeper_NeedsADatabaseAlone(t *testing.T) {
	all := rendered(t, sweepsAlone(t, "monitoring: {enabled: true}\n"))
	var rules []string
	for _, r := range of[monitoring.PrometheusRule](t, all) {
		rules = append(rules, r.Name)
	}
	if want := []string{"orderclose-sweeper"}; !slices.Equal(rules, want) {
		t.Errorf("the rules are %q, want %q", rules, want)
	}
	env := all["ConfigMap orderclose-env"].content["data"].(values)
	for name := range env {
		if strings.Contains(name, "KAFKA") || strings.Contains(name, "REDIS") {
			t.Errorf("the environment has %s", name)
		}
	}
	for id := range all {
		if strings.HasSuffix(id, "-kafka") || strings.HasSuffix(id, "-redis") {
			t.Errorf("there is a %s", id)
		}
	}
	if ds := all.deployments(t); len(ds) != 1 || !slices.Equal(ds[0].Spec.Template.Spec.Containers[0].Args,
		[]string{"run", "sweeper", "--every=5s", "--config=/etc/orderclose/topics.yaml"}) {
		t.Errorf("the parts are %v", ds)
	}
}

// roleOfRoom is what the chart knows of a role of a room.
type roleOfRoom struct {
	Kafka             bool
	Servers, Required []string
}

func rolesOfRooms(t *testing.T) (roles map[string]roleOfRoom) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "templates/_rooms.tpl"))
	must(t, err)
	_, text, _ = bytes.Cut(text, []byte("-}}\n"))
	text, _, _ = bytes.Cut(text, []byte("{{-"))
	must(t, yaml.Unmarshal(text, &roles))
	return roles
}

// A role of a room that needs no Kafka runs beside sweeps alone, with its files and its rules.
func TestRooms_RolesWithoutKafkaRunBesideASweeper(t *testing.T) {
	seen := 0
	for role, of := range rolesOfRooms(t) {
		if of.Kafka {
			continue
		}
		seen++
		enabled := strings.Replace(sweepsAlone(t, "monitoring: {enabled: true}\n"), "roles:\n", "roles:\n  "+role+": {enabled: true}\n", 1)
		for _, name := range of.Required {
			if _, err := template(t, "orderclose", "shop", parse(t, enabled)); err == nil || !strings.Contains(err.Error(), "env."+name+" is not set") {
				t.Errorf("%s without %s: %v", role, name, err)
			}
			enabled = strings.Replace(enabled, "env:\n", "env:\n  "+name+"_FILE: /run/secrets/services/key\n", 1)
		}
		all := rendered(t, enabled)
		c := all.deployment(t, role).Spec.Containers[0]
		var mounts []string
		for _, m := range c.VolumeMounts[1:] {
			mounts = append(mounts, m.Name)
		}
		if !slices.Equal(c.Args[:2], []string{"run", role}) || !slices.Equal(mounts, of.Servers) {
			t.Errorf("%s: the pod has the arguments %v and the files of %v, want those of %v", role, c.Args, mounts, of.Servers)
		}
		if all["PrometheusRule orderclose-"+role].Kind == "" {
			t.Errorf("%s has no rules", role)
		}
	}
	if seen == 0 {
		t.Skip("each role of a room needs Kafka")
	}
}

func TestServiceMonitor_ScrapesEveryPart(t *testing.T) {
	all := rendered(t, whole)
	m := of[monitoring.ServiceMonitor](t, all)[0]
	services := of[core.Service](t, all)
	s := services[0]
	for _, other := range services[1:] {
		if other.Spec.Ports[0].Name == m.Spec.Endpoints[0].Port {
			t.Errorf("%s is scraped too", other.Name)
		}
	}
	for key, value := range m.Spec.Selector.MatchLabels {
		if s.Labels[key] != value {
			t.Errorf("the ServiceMonitor does not select the Service %s", s.Name)
		}
	}
	if m.Spec.Endpoints[0].Port != s.Spec.Ports[0].Name || m.Labels["release"] != "prometheus" {
		t.Errorf("the ServiceMonitor scrapes %s, has %v", m.Spec.Endpoints[0].Port, m.Labels)
	}
	if s.Spec.Ports[0].TargetPort.StrVal != all.deployments(t)[0].Spec.Template.Spec.Containers[0].Ports[0].Name {
		t.Errorf("the Service sends to the port %s", s.Spec.Ports[0].TargetPort.StrVal)
	}
}

// By a value the parts that join consumer groups are StatefulSets, and each pod has an instance of its own: its name. The autoscaler scales them too.
func TestStatefulSets_GiveEachPodItsInstance(t *testing.T) {
	values, want := allOn, []string{"closer", "relay"}
	for name, of := range rolesOfRooms(t) {
		if !of.Kafka {
			continue
		}
		if want = append(want, name); !strings.Contains(allOn, name+": {enabled") {
			values = strings.Replace(values, "roles: {", "roles: {"+name+": {enabled: true}, ", 1)
		}
	}
	slices.Sort(want)
	all := rendered(t, values+"statefulSets: true\n")
	var names []string
	for _, s := range of[apps.StatefulSet](t, all) {
		names = append(names, strings.TrimPrefix(s.Name, "orderclose-"))
		if s.Spec.PodManagementPolicy != apps.ParallelPodManagement {
			t.Errorf("%s starts its pods one after the other", s.Name)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("the StatefulSets are %q, want %q", names, want)
	}
	for _, p := range all.pods(t) {
		own := 0
		for _, e := range p.Spec.Containers[0].Env {
			if e.Name == "ORDERCLOSE_INSTANCE" && e.ValueFrom.FieldRef.FieldPath == "metadata.name" {
				own++
			}
		}
		if stateful := strings.HasPrefix(p.of, "StatefulSet"); stateful != (own == 1) {
			t.Errorf("%s has its name as its instance %d times", p.of, own)
		}
	}
	for name, s := range all.scaledObjects(t) {
		if s.Spec.ScaleTargetRef.Kind != "StatefulSet" {
			t.Errorf("%s scales the %s %s", name, s.Spec.ScaleTargetRef.Kind, s.Spec.ScaleTargetRef.Name)
		}
	}
}
