package kubetest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
	"k8s.io/apimachinery/pkg/labels"
)

// eachSet runs a test for each set of objects that somebody may install.
func eachSet(t *testing.T, test func(t *testing.T, all objects)) {
	t.Helper()
	for name, text := range map[string]string{
		"small": small, "whole": whole, "all on": allOn, "stateful sets": allOn + "statefulSets: true\n",
		"sweeps alone": sweepsAlone(t), "webhook beside sweeps": withWebhook(t, sweepsAlone(t)),
	} {
		t.Run(name, func(t *testing.T) { test(t, rendered(t, text)) })
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
		changed := objects{}
		for _, o := range rendered(t, allOn) {
			if strings.Contains(o.text, from) {
				changed.add(t, "changed", strings.Replace(o.text, from, to, 1))
			}
		}
		that(t, len(changed) > 0, "no object has %s", from)
		for id, o := range changed {
			_, err := o.check(t)
			that(t, err != nil, "%s is accepted in place of %s in %s", to, from, id)
		}
	}
}

// What the Pod Security Standard "restricted" demands, and more.
func TestPods_HaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		for _, p := range all.pods(t) {
			s := p.Spec.SecurityContext
			that(t, s != nil && is(s.RunAsNonRoot) && s.RunAsUser != nil && *s.RunAsUser != 0 && s.SeccompProfile != nil &&
				s.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault, "%s: the pod runs as root, or without the default seccomp profile", p.of)
			that(t, isNot(p.Spec.AutomountServiceAccountToken) && !p.Spec.HostNetwork && !p.Spec.HostPID && !p.Spec.HostIPC,
				"%s: the pod has a token, or a namespace of the node", p.of)
			that(t, all["ServiceAccount "+p.Spec.ServiceAccountName].Kind != "", "%s: there is no ServiceAccount %q", p.of, p.Spec.ServiceAccountName)
			for _, c := range p.Spec.Containers {
				s := c.SecurityContext
				that(t, s != nil && isNot(s.AllowPrivilegeEscalation) && is(s.ReadOnlyRootFilesystem) && !is(s.Privileged) && s.Capabilities != nil &&
					slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) && len(s.Capabilities.Add) == 0, "%s: too many rights: %+v", p.of, s)
				r := c.Resources
				that(t, !r.Requests.Cpu().IsZero() && !r.Requests.Memory().IsZero() && !r.Limits.Memory().IsZero(),
					"%s: the container requests %v, and is limited to %v", p.of, r.Requests, r.Limits)
			}
		}
	})
}

func is(b *bool) bool    { return b != nil && *b }
func isNot(b *bool) bool { return b != nil && !*b }

// The program accepts the arguments of each container with its topics.yaml, and the pod has each variable that the program asks for: in the
// environment, or as a file of a Secret that is mounted. The program stops before the pod is killed.
func TestPods_RunTheProgramWithWhatItNeeds(t *testing.T) {
	program := filepath.Join(t.TempDir(), "orderclose")
	build := exec.Command("go", "build", "-o", program, "./cmd/orderclose")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	that(t, err == nil, "%v\n%s", err, out)
	stops, err := strconv.Atoi(codeHas(t, "internal/cli/run.go", `const stopTimeout = (\d+) \* time\.Second`))
	must(t, err)
	ran := map[string]bool{}
	eachSet(t, func(t *testing.T, all objects) {
		topics := filepath.Join(t.TempDir(), "topics.yaml")
		must(t, os.WriteFile(topics, []byte(all.data("orderclose-topics")["topics.yaml"].(string)), 0o600))
		for _, p := range all.pods(t) {
			c, env := p.Spec.Containers[0], values{}
			grace := *p.Spec.TerminationGracePeriodSeconds
			that(t, grace > int64(stops)+1, "%s is killed after %d s, and may need %d and one to stop", p.of, grace, stops)
			if ran[strings.Join(append(c.Command, c.Args[:len(c.Args)-1]...), " ")] = true; c.Command != nil {
				continue // the programs of modules of their own check what they need
			}
			for _, from := range c.EnvFrom {
				maps.Copy(env, all.data(from.ConfigMapRef.Name))
			}
			that(t, env["ORDERCLOSE_LISTEN"] == "0.0.0.0:9464" && (len(c.Ports) == 0 || c.Ports[0].ContainerPort == 9464),
				"%s: orderclose listens on %v, and the ports are %v", p.of, env["ORDERCLOSE_LISTEN"], c.Ports)
			run := exec.Command(program, strings.Split(strings.ReplaceAll(strings.Join(c.Args, " "), "/etc/orderclose/topics.yaml", topics), " ")...)
			run.Env = []string{}
			out, _ := run.CombinedOutput()
			asked := regexp.MustCompile(`(ORDERCLOSE_[A-Z_]+) is not set`).FindAllStringSubmatch(string(out), -1)
			code := run.ProcessState.ExitCode()
			that(t, code == 2 && len(asked) > 0, "%s: orderclose %q exits with %d: %s", p.of, c.Args, code, out)
			for _, m := range asked {
				file, _ := env[m[1]+"_FILE"].(string)
				mounted := slices.ContainsFunc(c.VolumeMounts, func(v core.VolumeMount) bool { return strings.HasPrefix(file, v.MountPath+"/") })
				that(t, env[m[1]] != nil || mounted, "%s needs %s, which the pod does not have", p.of, m[1])
			}
		}
	})
	for _, want := range []string{"migrate", "topics apply", "run relay", "run closer", "run compensator", "run outbox", "run console", "orderclose-payments"} {
		that(t, ran[want], "no container runs orderclose %s: %v", want, ran)
	}
}

// codeHas returns what a pattern finds in a file of the program.
func codeHas(t *testing.T, file, pattern string) string {
	t.Helper()
	code, err := os.ReadFile("../../" + file)
	must(t, err)
	found := regexp.MustCompile(pattern).FindSubmatch(code)
	if found == nil {
		t.Fatalf("%s has no %s", file, pattern)
	}
	return string(found[len(found)-1])
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
				env := map[string]core.EnvVar{}
				for _, v := range c.Env {
					env[v.Name] = v
				}
				limit := c.Resources.Limits.Memory().Value()
				that(t, env["GOMEMLIMIT"].Value == fmt.Sprint(limit*9/10), "%s: GOMEMLIMIT is %q, not 90 %% of %d", p.of, env["GOMEMLIMIT"].Value, limit)
				delete(env, "GOMEMLIMIT")
				own := env["ORDERCLOSE_INSTANCE"].ValueFrom // a pod of a StatefulSet keeps its name
				that(t, strings.HasPrefix(p.of, "StatefulSet") == (own != nil && own.FieldRef.FieldPath == "metadata.name"), "%s: its instance is %v", p.of, own)
				delete(env, "ORDERCLOSE_INSTANCE")
				that(t, len(env) == 0, "%s: %v is not in the shared environment", p.of, env)
				for _, from := range c.EnvFrom {
					proxy := c.Name == "proxy" && from.SecretRef != nil // oauth2-proxy reads its secrets from variables
					that(t, proxy || from.ConfigMapRef != nil && all["ConfigMap "+from.ConfigMapRef.Name].Kind != "", "%s: the environment is of %+v", p.of, from)
				}
				for _, m := range c.VolumeMounts {
					v, ok := volumes[m.Name]
					delete(volumes, m.Name)
					that(t, ok && m.ReadOnly && m.SubPath == "", "%s: the mount %+v has no volume, may be written, or does not change", p.of, m)
					if v.ConfigMap != nil {
						that(t, all["ConfigMap "+v.ConfigMap.Name].Kind != "" && m.MountPath == "/etc/orderclose", "%s: %+v", p.of, m)
						continue
					}
					that(t, v.Secret != nil && m.MountPath == "/run/secrets/"+m.Name && is(v.Secret.Optional) && *v.Secret.DefaultMode == 0o440,
						"%s: the volume %s is neither a ConfigMap nor a Secret, or is at %s", p.of, m.Name, m.MountPath)
				}
			}
			that(t, len(volumes) == 0, "%s does not mount its volumes %v", p.of, volumes)
		}
	})
}

func TestPods_OfPartsAreProbedAndSpread(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		for _, p := range all.parts(t) {
			c := p.Spec.Containers[0]
			for path, probe := range map[string]*core.Probe{"/-/healthy": c.LivenessProbe, "/-/ready": c.ReadinessProbe} {
				that(t, probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Path == path && probe.HTTPGet.Port.StrVal == c.Ports[0].Name,
					"%s: the probe is %+v, want %s", p.of, probe, path)
				codeHas(t, "pipeline/health.go", `"GET `+path+`"`)
			}
			spread := p.Spec.TopologySpreadConstraints
			that(t, len(spread) == 2, "%s is spread over %v", p.of, spread)
			for _, s := range spread {
				that(t, maps.Equal(s.LabelSelector.MatchLabels, p.selector), "%s: the spread counts the pods of %v", p.of, s.LabelSelector.MatchLabels)
			}
			for key, value := range p.selector {
				that(t, p.Labels[key] == value, "%s does not select its own pods", p.of)
			}
		}
	})
}

// Each part has one budget, each pod a policy that denies what is not listed, and each policy, budget and Service selects pods that exist.
func TestSelectors_SelectExistingPods(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		pods := all.pods(t)
		budgets, policies := map[string]int{}, map[string][]string{}
		for _, b := range of[policy.PodDisruptionBudget](t, all) {
			chosen := selected(t, pods, *b.Spec.Selector)
			that(t, len(chosen) == 1 && b.Spec.MaxUnavailable.IntValue() == 1, "the budget %s is for %d pods", b.Name, len(chosen))
			for _, p := range chosen {
				budgets[p.of]++
			}
		}
		for _, n := range of[networking.NetworkPolicy](t, all) {
			chosen := selected(t, pods, n.Spec.PodSelector)
			that(t, len(chosen) > 0, "the policy %s is for no pod", n.Name)
			for _, p := range chosen {
				policies[p.of] = append(policies[p.of], strings.TrimPrefix(n.Name, "orderclose"))
			}
			for _, in := range n.Spec.Ingress {
				that(t, len(in.From) == 1 && len(in.Ports) == 1, "the policy %s admits %+v", n.Name, in)
			}
			for _, e := range n.Spec.Egress {
				that(t, len(e.Ports) > 0, "the policy %s allows any port", n.Name)
			}
			that(t, len(n.Spec.Ingress)+len(n.Spec.Egress) > 0, "the policy %s allows nothing", n.Name)
		}
		for _, p := range pods {
			that(t, p.selector == nil || budgets[p.of] == 1, "%s has %d budgets", p.of, budgets[p.of])
			// Each server whose Secret the pod mounts has a policy that lets the pod reach it, and the pod may reach no other.
			want := []string{""}
			for _, v := range p.Spec.Volumes {
				if v.Secret != nil {
					want = append(want, "-"+v.Name)
				}
			}
			part := p.Labels["app.kubernetes.io/component"]
			if _, is := all["Deployment orderclose-payments"]; is && slices.Contains([]string{"closer", "compensator", "sweeper"}, part) { // they ask it
				want = append(want, "-payments-callers")
			}
			if _, is := all["NetworkPolicy orderclose-console"]; is && part == "console" { // the Ingress controller reaches it
				want = append(want, "-console")
			}
			have := policies[p.of]
			slices.Sort(want)
			slices.Sort(have)
			that(t, slices.Equal(want, have), "%s has the policies %q, want %q", p.of, have, want)
		}
		for _, s := range of[core.Service](t, all) {
			chosen := selected(t, pods, meta.LabelSelector{MatchLabels: s.Spec.Selector})
			own := len(chosen) == 1 && chosen[0].of == "Deployment "+s.Name
			that(t, own || s.Name == "orderclose" && len(chosen) == len(pods), "the Service %s selects %d pods", s.Name, len(chosen))
			for _, p := range chosen {
				that(t, p.selector == nil || hasPort(p, s.Spec.Ports[0].TargetPort.StrVal), "%s has not the port of the Service %s", p.of, s.Name)
			}
		}
	})
}

// hasPort says whether a container of the pod has a port of this name.
func hasPort(p pod, name string) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c core.Container) bool {
		return slices.ContainsFunc(c.Ports, func(port core.ContainerPort) bool { return port.Name == name })
	})
}

// selected returns the pods that a selector selects.
func selected(t *testing.T, pods []pod, by meta.LabelSelector) (chosen []pod) {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(&by)
	must(t, err)
	for _, p := range pods {
		if selector.Matches(labels.Set(p.Labels)) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// Sweeps alone need neither brokers nor Redis.
func TestSweeper_NeedsADatabaseAlone(t *testing.T) {
	all := rendered(t, sweepsAlone(t))
	for name := range all.data("orderclose-env") {
		that(t, !strings.Contains(name, "KAFKA") && !strings.Contains(name, "REDIS"), "the environment has %s", name)
	}
	parts, want := all.parts(t), []string{"run", "sweeper", "--every=5s", "--config=/etc/orderclose/topics.yaml"}
	that(t, len(parts) == 1 && slices.Equal(parts[0].Spec.Containers[0].Args, want), "the parts are %v", parts)
}

// The webhook runs beside sweeps alone, with its files and its rules, if its secret is set.
func TestWebhook_RunsBesideASweeper(t *testing.T) {
	text := withWebhook(t, sweepsAlone(t))
	all := rendered(t, text)
	c, mounts := all.part(t, "webhook").Spec.Containers[0], []string{}
	for _, m := range c.VolumeMounts[1:] {
		mounts = append(mounts, m.Name)
	}
	runs, has := slices.Equal(c.Args[:2], []string{"run", "webhook"}), slices.Equal(mounts, []string{"database", "services"})
	that(t, runs && has, "%v, with the files of %v", c.Args, mounts)
	that(t, all["PrometheusRule orderclose-webhook"].Kind != "", "it has no rules")
	v := parse(t, text)
	delete(v["env"].(values), "ORDERCLOSE_WEBHOOK_SECRET_FILE")
	_, err := template(t, "orderclose", "shop", v)
	that(t, err != nil && strings.Contains(err.Error(), "env.ORDERCLOSE_WEBHOOK_SECRET is not set"), "without its secret: %v", err)
}

// By a value the parts that join consumer groups are StatefulSets.
func TestStatefulSets_AreThePartsWithConsumerGroups(t *testing.T) {
	want := []string{"closer", "relay"}
	var names []string
	for _, s := range of[apps.StatefulSet](t, rendered(t, allOn+"statefulSets: true\n")) {
		names = append(names, strings.TrimPrefix(s.Name, "orderclose-"))
		that(t, s.Spec.PodManagementPolicy == apps.ParallelPodManagement, "%s starts its pods one after the other", s.Name)
	}
	that(t, slices.Equal(names, want), "the StatefulSets are %q, want %q", names, want)
}

func TestServiceMonitor_ScrapesEveryPart(t *testing.T) {
	all := rendered(t, whole)
	m := of[monitoring.ServiceMonitor](t, all)[0]
	that(t, m.Labels["release"] == "prometheus", "the labels are %v", m.Labels)
	for _, s := range of[core.Service](t, all) {
		chosen := slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port })
		for key, value := range m.Spec.Selector.MatchLabels {
			chosen = chosen && s.Labels[key] == value
		}
		that(t, chosen == (s.Name == "orderclose"), "the Service %s is scraped: %v; that of all parts is orderclose", s.Name, chosen)
	}
}
