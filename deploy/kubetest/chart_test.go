package kubetest

import (
	"errors"
	"io"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const chartDir = "../helm/orderclose"

// values are values of the chart.
type values = map[string]any

// small are the fewest values with which the chart can be installed.
const small = `env: {ORDERCLOSE_KAFKA_BROKERS: "kafka:9092"}`

// sweepsAlone returns the values that the chart has for sweeps with a database alone, and more of them.
func sweepsAlone(t *testing.T, more string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "sweeper.yaml"))
	must(t, err)
	return string(text) + more
}

// whole sets every switch and list of the chart. Tests of rooms add to it.
var whole = `
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
networkPolicy: {prometheusNamespace: observability, ports: {kafka: [9093, 9094]}, to: {database: [{ipBlock: {cidr: 10.0.7.0/28}}]}}
monitoring: {enabled: true, labels: {release: prometheus}, interval: 30s, dashboards: {enabled: true, annotations: {grafana_folder: orders}}}
autoscaling: {enabled: true}
`

// allOn are values for all that runs beside a pipeline, with the defaults of the rest. Tests of rooms add to it.
var allOn = `
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

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	must(t, err)
	return c
}

// template renders the chart, as helm template does.
func template(t *testing.T, release, namespace string, v values) (map[string]string, error) {
	t.Helper()
	c := load(t)
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
	files, err := template(t, "orderclose", "orderclose", parse(t, text))
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
	for name, text := range map[string]string{"small": small, "whole": whole, "sweeps alone": sweepsAlone(t, "")} {
		for _, m := range lint.AllWithKubeVersion(chartDir, parse(t, text), "orderclose", nil).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// Two releases in one namespace share no object, and select no pod of the other.
func TestChart_ReleasesInOneNamespaceAreSeparate(t *testing.T) {
	all := map[string]bool{}
	for _, release := range []string{"orderclose", "orderclose-staging", "shop", strings.Repeat("long", 13)} {
		files, err := template(t, release, "shop", parse(t, whole))
		must(t, err)
		o := objects{}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			o.add(t, name, files[name])
		}
		for id, one := range o {
			if all[id] {
				t.Errorf("two releases have %s", id)
			}
			all[id] = true
			if len(one.Name) > 63 {
				t.Errorf("%s is longer than 63 characters", id)
			}
		}
		for _, d := range o.deployments(t) {
			if d.Spec.Selector.MatchLabels["app.kubernetes.io/instance"] != release {
				t.Errorf("%s of release %s selects %v", d.Name, release, d.Spec.Selector.MatchLabels)
			}
		}
	}
}

// helm show readme prints the README. The notes after an installation say how a Job runs again.
func TestChart_HasAReadmeAndNotes(t *testing.T) {
	c := load(t)
	for _, f := range c.Files {
		if f.Name == "README.md" && !strings.Contains(string(f.Data), "--kube-version") {
			t.Errorf("the README does not say what a helm of go install needs:\n%s", f.Data)
		}
	}
	if !slices.ContainsFunc(c.Files, func(f *chart.File) bool { return f.Name == "README.md" }) {
		t.Error("there is no README.md")
	}
	given, err := chartutil.ToRenderValues(c, parse(t, whole), chartutil.ReleaseOptions{Name: "orders", Namespace: "shop"}, nil)
	must(t, err)
	files, err := engine.Render(c, given)
	must(t, err)
	notes := files["orderclose/templates/NOTES.txt"]
	for _, want := range []string{"kubectl -n shop delete job -l app.kubernetes.io/instance=orders\n", "https://console.example/\n"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not have %q:\n%s", want, notes)
		}
	}
}

// A Job cannot be changed, so another image, environment or topics.yaml makes another Job.
// A rollout that changes none of them leaves the finished Job alone.
func TestChart_AJobRunsAgainIfItWouldDoSomethingElse(t *testing.T) {
	names := func(text string) string {
		var all []string
		for _, j := range rendered(t, text).jobs(t) {
			all = append(all, j.Name)
		}
		return strings.Join(all, " ")
	}
	was := names(small)
	if again := names(small + "\nroles: {relay: {replicas: 7}}"); again != was {
		t.Errorf("more relays: %s, then %s", was, again)
	}
	for _, change := range []string{"image: {tag: 9.9.9}", "topics: {partitions: 24}", `env: {ORDERCLOSE_KAFKA_BROKERS: "other:9092"}`} {
		text := small + "\n" + change
		if strings.HasPrefix(change, "env") {
			text = change
		}
		if now := names(text); now == was {
			t.Errorf("%s: the Jobs are still %s", change, now)
		}
	}
}

// topics.yaml and payments.yaml are passed on as they are, also their numbers.
func TestChart_PassesFilesOn(t *testing.T) {
	for _, file := range []string{"topics", "payments"} {
		o := rendered(t, whole)["ConfigMap orderclose-"+file]
		text, _ := o.content["data"].(values)[file+".yaml"].(string)
		want := parse(t, whole)[file].(values)
		if file == "payments" {
			want["listen"] = "0.0.0.0:9464"
		}
		if have := parse(t, text); !reflect.DeepEqual(have, want) || strings.Contains(text, "e+") {
			t.Errorf("%s.yaml is\n%s\nwant %v", file, text, want)
		}
	}
}

// payments does not read payments.yaml again, so a change restarts it, and nothing else.
func TestChart_AChangeOfPaymentsRestartsPayments(t *testing.T) {
	annotations := func(text string) map[string]string {
		all := map[string]string{}
		for _, p := range rendered(t, text).pods(t) {
			all[p.of] = p.Annotations["checksum/env"]
		}
		return all
	}
	was, now := annotations(whole), annotations(strings.Replace(whole, "authorized: release", "authorized: paid", 1))
	for of := range was {
		if changed := was[of] != now[of]; changed != (of == "Deployment orderclose-payments") {
			t.Errorf("%s: changed is %v", of, changed)
		}
	}
}

// The chart shows a value's mistake before anything is installed: its schema lists every value.
func TestChart_TheSchemaListsEveryValue(t *testing.T) {
	var schema map[string]any
	text, err := os.ReadFile(path.Join(chartDir, "values.schema.json"))
	if err == nil {
		err = yaml.Unmarshal(text, &schema)
	}
	must(t, err)
	if err := listed(schema, schema, load(t).Values, "values"); err != nil {
		t.Error(err)
	}
}

// listed returns an error for each key that the schema does not list.
func listed(root, schema map[string]any, v any, at string) error {
	if ref, ok := schema["$ref"].(string); ok {
		return listed(root, root["definitions"].(values)[strings.TrimPrefix(ref, "#/definitions/")].(values), v, at)
	}
	properties, ok := schema["properties"].(values)
	if !ok || schema["additionalProperties"] != false {
		return nil
	}
	var errs []error
	for key, value := range v.(values) {
		p, ok := properties[key].(values)
		if !ok {
			errs = append(errs, errors.New(at+"."+key+" is not in values.schema.json"))
			continue
		}
		errs = append(errs, listed(root, p, value, at+"."+key))
	}
	return errors.Join(errs...)
}
