package kubetest

import (
	"io"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "../helm/orderclose"

// values are values of the chart.
type values = map[string]any

// small are the fewest values with which the chart can be installed.
const small = `env: {ORDERCLOSE_KAFKA_BROKERS: "kafka:9092"}`

// sweepsAlone returns the values that the chart has for sweeps with a database alone, with monitoring.
func sweepsAlone(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "sweeper.yaml"))
	must(t, err)
	return string(text) + "monitoring: {enabled: true}\n"
}

// withWebhook returns values with the webhook.
func withWebhook(t *testing.T, text string) string {
	t.Helper()
	v := parse(t, text)
	v["roles"].(values)["webhook"] = values{"enabled": true}
	v["env"].(values)["ORDERCLOSE_WEBHOOK_SECRET_FILE"] = "/run/secrets/services/key"
	all, err := yaml.Marshal(v)
	must(t, err)
	return string(all)
}

// whole sets every switch and list of the chart.
const whole = `
image: {repository: registry.example/orderclose, tag: 1.2.3, pullPolicy: Always}
topics:
  delays: {default: 15m, categories: {virtual: 5m}, max: 7d}
  buckets: [10s, 1m, 5m, 15m]
  topics: {prefix: staging-}
  partitions: 4
  replication: 3
  compensator: {rate: 1000000}
  closer: {payment: {url: "https://shop.example/payments"}}
payments:
  query: SELECT order_id, reference FROM order_payments WHERE order_id IN (?)
  stripe: {key_file: /run/secrets/payments/stripe-key, authorized: release}
env:
  ORDERCLOSE_KAFKA_BROKERS: kafka-1:9093,kafka-2:9093
  ORDERCLOSE_KAFKA_TLS_CA_FILE: /run/secrets/kafka/ca.crt
  ORDERCLOSE_KAFKA_TLS_CERT_FILE: /run/secrets/kafka/tls.crt
  ORDERCLOSE_KAFKA_TLS_KEY_FILE: /run/secrets/kafka/tls.key
  ORDERCLOSE_KAFKA_SASL_MECHANISM: SCRAM-SHA-512
  ORDERCLOSE_KAFKA_SASL_USER_FILE: /run/secrets/kafka/user
  ORDERCLOSE_KAFKA_SASL_PASSWORD_FILE: /run/secrets/kafka/password
  ORDERCLOSE_PAYMENT_SECRET_FILE: /run/secrets/services/payment-secret
secrets: {database: shop-database}
roles:
  relay: {secrets: {kafka: orderclose-kafka-relay}}
  payments: {enabled: true, podAnnotations: {shop.example/team: oncall}}
  sweeper: {enabled: true, every: 30s}
  console: {enabled: true}
console:
  env: {ORDERCLOSE_CONSOLE_OPERATORS: ann@shop.example}
  proxy: {enabled: true, args: ["--provider=oidc", "--email-domain=shop.example"], secret: sign-in}
  ingress: {enabled: true, className: nginx, annotations: {nginx.ingress.kubernetes.io/proxy-buffering: "off"}, host: console.example, tlsSecret: console-tls}
jobs:
  migrate: {secrets: {database: orderclose-database-admin}, podAnnotations: {sidecar.istio.io/inject: "false"}}
podAnnotations: {shop.example/team: orders, vault.hashicorp.com/agent-inject: "true"}
podLabels: {shop.example/tier: backend}
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::111122223333:role/orders"}}
pod:
  imagePullSecrets: [{name: registry}]
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: shop, operator: Exists}]
networkPolicy: {prometheusNamespace: observability, ports: {kafka: [9093, 9094], dns: [5353]}, to: {database: [{ipBlock: {cidr: 10.0.7.0/28}}]}}
monitoring: {enabled: true, labels: {release: prometheus}, interval: 30s, dashboards: {enabled: true, annotations: {grafana_folder: orders}}}
autoscaling: {enabled: true}
`

// allOn are values for all that runs beside a pipeline, with the defaults of the rest.
const allOn = `
env:
  ORDERCLOSE_KAFKA_BROKERS: "kafka:9092"
  ORDERCLOSE_PAYMENT_SECRET_FILE: /run/secrets/services/payment-secret
payments:
  query: SELECT order_id, reference FROM order_payments WHERE order_id IN (?)
  stripe: {key_file: /run/secrets/payments/stripe-key, authorized: release}
roles: {payments: {enabled: true}}
monitoring: {enabled: true}
autoscaling: {enabled: true}
`

func parse(t *testing.T, text string) values {
	t.Helper()
	v := values{}
	must(t, yaml.UnmarshalStrict([]byte(text), &v))
	return v
}

// template renders the chart, as helm template does.
func template(t *testing.T, release, namespace string, v values) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	must(t, err)
	given, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, given)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for name, text := range files {
		if base := path.Base(name); strings.TrimSpace(text) != "" && !strings.HasPrefix(base, "_") && base != "NOTES.txt" {
			texts[base] = text
		}
	}
	return texts, nil
}

// rendered returns the objects of the chart.
func rendered(t *testing.T, text string) objects {
	t.Helper()
	return released(t, "orderclose", text)
}

// released is rendered, for a release of this name in the namespace shop.
func released(t *testing.T, release, text string) objects {
	t.Helper()
	files, err := template(t, release, "shop", parse(t, text))
	must(t, err)
	all := objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all.add(t, name, files[name])
	}
	return all
}

func TestChart_PassesLint(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	for name, text := range map[string]string{"small": small, "whole": whole, "sweeps alone": sweepsAlone(t)} {
		for _, m := range lint.AllWithKubeVersion(chartDir, parse(t, text), "orderclose", nil).Messages {
			that(t, m.Severity <= support.InfoSev, "%s: %v", name, m)
		}
	}
}

// Two releases in one namespace share no object, and select no pod of the other.
func TestChart_ReleasesInOneNamespaceAreSeparate(t *testing.T) {
	all := map[string]bool{}
	for _, release := range []string{"orderclose", "orderclose-staging", "shop", strings.Repeat("long", 13)} {
		o := released(t, release, whole)
		for id, one := range o {
			that(t, !all[id], "two releases have %s", id)
			that(t, len(one.Name) <= 63, "%s is longer than 63 characters", id)
			all[id] = true
		}
		for _, p := range o.parts(t) {
			that(t, p.selector["app.kubernetes.io/instance"] == release, "%s of release %s selects %v", p.of, release, p.selector)
		}
	}
}

// Each object has the labels that tools of Helm look for. No selector has them, because a new version of the chart changes them.
func TestChart_ObjectsHaveTheLabelsOfHelmAndTheNamesOfTheUser(t *testing.T) {
	for text, want := range map[string][2]string{
		"":                           {"shop-orderclose", "orderclose"},
		"\nnameOverride: closer":     {"shop-closer", "closer"},
		"\nnameOverride: shop":       {"shop", "shop"},
		"\nfullnameOverride: orders": {"orders", "orderclose"},
	} {
		all := released(t, "shop", allOn+text)
		for id, o := range all {
			labels := o.content["metadata"].(values)["labels"].(values)
			that(t, labels["app.kubernetes.io/managed-by"] == "Helm" && strings.HasPrefix(labels["helm.sh/chart"].(string), "orderclose-0.") &&
				labels["app.kubernetes.io/name"] == want[1] && (o.Name == want[0] || strings.HasPrefix(o.Name, want[0]+"-")),
				"%s: the labels %v, want names like %v", id, labels, want)
		}
		for _, p := range all.parts(t) {
			that(t, len(p.selector) == 3 && p.Labels["helm.sh/chart"] == "", "%s selects %v, and its pods have %v", p.of, p.selector, p.Labels)
		}
	}
}

// A change restarts only the parts that do not read it again. A Job cannot be changed, so another image, environment or topics.yaml makes another Job.
func TestChart_AChangeRestartsWhatItConcerns(t *testing.T) {
	pods := func(text string) map[string]string {
		all := map[string]string{}
		for _, p := range rendered(t, text).pods(t) {
			all[p.of] = p.Annotations["checksum/env"]
		}
		return all
	}
	was := pods(whole)
	for _, c := range []struct{ from, to, concerns string }{
		{"relay: {", "relay: {replicas: 7, ", "^$"},
		{"tag: 1.2.3", "tag: 9.9.9", "^Job"},
		{"partitions: 4", "partitions: 24", "^Job"},
		{"kafka-1:9093,", "", ""},
		{"authorized: release", "authorized: paid", "^Deployment orderclose-payments$"}, // which does not read payments.yaml again
		{"ann@shop", "ben@shop", "^Deployment orderclose-console$"},
	} {
		now := pods(strings.Replace(whole, c.from, c.to, 1))
		for of, checksum := range was {
			changed := now[of] != checksum // also if there is no such Job any more
			that(t, changed == regexp.MustCompile(c.concerns).MatchString(of), "%q in place of %q: %s is changed: %v", c.to, c.from, of, changed)
		}
	}
}

// topics.yaml, payments.yaml and variables of others, such as those of Go, are passed on as they are, also their numbers.
func TestChart_PassesFilesAndVariablesOn(t *testing.T) {
	for _, file := range []string{"topics", "payments"} {
		text, _ := rendered(t, whole).data("orderclose-" + file)[file+".yaml"].(string)
		want := parse(t, whole)[file].(values)
		if file == "payments" {
			want["listen"] = "0.0.0.0:9464"
		}
		that(t, reflect.DeepEqual(parse(t, text), want) && !strings.Contains(text, "e+"), "%s.yaml is\n%s\nwant %v", file, text, want)
	}
	o := rendered(t, `env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", SSL_CERT_FILE: /etc/own/ca.crt, GOMEMLIMIT: 300MiB}`)
	data := o.data("orderclose-env")
	that(t, data["SSL_CERT_FILE"] == "/etc/own/ca.crt", "the environment is %v", data)
	for _, p := range o.pods(t) {
		that(t, len(p.Spec.Containers[0].Env) == 0, "%s overrides GOMEMLIMIT", p.of)
	}
}

// metric matches the metrics of a rule, and ofRelease selects the series of a release.
var metric = regexp.MustCompile(`\borderclose_[a-z_]+|\bup\b`)

const ofRelease = `namespace="shop",job="orderclose"`

// The rules and dashboards are those of the folders, every file and nothing else, and a rule reads no other release. Grafana's sidecar finds each
// dashboard by its label.
func TestChart_HasTheRulesAndDashboardsOfItsFolders(t *testing.T) {
	for text, patterns := range map[string][]string{whole: {"alerts/*.rules.yml", "dashboards/*.json"}, sweepsAlone(t): {"alerts/sweeper/*.rules.yml"}} {
		all, count := rendered(t, text), 0
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(chartDir, pattern))
			must(t, err)
			that(t, len(files) > 0, "no %s", pattern)
			for _, file := range files {
				text, err := os.ReadFile(file)
				must(t, err)
				name, isRule := strings.CutSuffix(filepath.Base(file), ".rules.yml")
				if count++; isRule {
					have := all["PrometheusRule orderclose-"+name].content["spec"]
					for _, group := range have.(values)["groups"].([]any) {
						for _, of := range group.(values)["rules"].([]any) {
							rule := of.(values)
							expr, labels := rule["expr"].(string), rule["labels"].(values)
							that(t, len(metric.FindAllString(expr, -1)) == strings.Count(expr, ofRelease), "%s reads other releases: %s", file, expr)
							that(t, labels["namespace"] == "shop" && labels["job"] == "orderclose", "%s: an alert with the labels %v", file, labels)
							rule["expr"] = strings.NewReplacer("{"+ofRelease+"}", "", ofRelease+",", "").Replace(expr)
							delete(labels, "namespace")
							delete(labels, "job")
						}
					}
					that(t, reflect.DeepEqual(have, parse(t, string(text))), "the PrometheusRule %s is not %s", name, file)
					continue
				}
				o := all["ConfigMap orderclose-dashboard-"+strings.TrimSuffix(name, ".json")]
				m, _ := o.decode(t).(*core.ConfigMap)
				that(t, m.Labels["grafana_dashboard"] == "1" && m.Annotations["grafana_folder"] == "orders" && m.Data["orderclose-"+name] == string(text),
					"the ConfigMap %s is not %s", o.Name, file)
			}
		}
		for id := range all {
			if strings.HasPrefix(id, "PrometheusRule") || strings.Contains(id, "-dashboard-") {
				count--
			}
		}
		that(t, count == 0, "there are %d more files than objects", count)
	}
}
