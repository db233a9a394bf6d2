package kubetest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

const (
	withConsole = small + "\nroles: {console: {enabled: true}}"
	everywhere  = "\nconsole: {env: {ORDERCLOSE_CONSOLE_LISTEN: \"0.0.0.0:9465\"}"
)

// A mistake in the values is refused, with its name.
func TestChart_RefusesWrongValues(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "set it to the brokers",
		small + "\nroles: {payments: {enabled: true}}":                                "payments.query is not set",
		"roles: {sweeper: {enabled: true}}":                                           "needs Kafka: set it to the brokers",
		small + "\nroles: {relays: {replicas: 3}}":                                    "relays",
		small + "\nroles: {relay: {replicas: many}}":                                  "replicas",
		small + "\nautoscaling: {closer: {max: 0}}":                                   "max",
		small + "\nnetworkPolicy: {ports: {kafka: [90920]}}":                          "kafka",
		small + "\nnetworkPolicy: {to: {kafkas: []}}":                                 "kafkas",
		small + "\ntopics: {partitions: 0}":                                           "partitions",
		small + "\ntopics: {delay: {default: 30m}}":                                   "'delay' not allowed",
		small + "\ntopics: {buckets: [10s, 1x]}":                                      "/topics/buckets/1",
		small + "\ntopics: {buckets: [{length: 5m}]}":                                 "got object, want string",
		small + "\ntopics: {delays: {default: 30}}":                                   "/topics/delays/default",
		small + "\ntopics: {delays: {categories: {virtual: 5 minutes}}}":              "/topics/delays/categories/virtual",
		small + "\ntopics: {compensator: {lock: zookeeper}}":                          "/topics/compensator/lock",
		small + "\ntopics: {compensator: {lock: {kind: database}}}":                   "/topics/compensator/lock",
		small + "\ntopics: {orders: {tabel: shop_orders}}":                            "'tabel' not allowed",
		withConsole + "\nconsole: {ingress: {enabled: true, host: c}}":                "nothing signs users in",
		withConsole + everywhere + "}":                                                "set console.env.ORDERCLOSE_CONSOLE_PROXIES",
		withConsole + "\nconsole: {proxy: {enabled: true}}":                           "console.proxy.args is empty",
		withConsole + everywhere + ", proxy: {enabled: true, args: [x]}}":             "on the loopback only",
		small + "\nconsole: {env: {ORDERCLOSE_CONSOLE_TOKENS_FILE: ann}}":             "ORDERCLOSE_CONSOLE_TOKENS_FILE",
		small + "\npod: {containers: []}":                                             "pod.containers cannot be set",
		small + "\npod: {restartPolicy: Never}":                                       "pod.restartPolicy cannot be set",
		small + "\npod: {serviceAccountName: own}":                                    "set serviceAccount.name",
		small + "\npod: {terminationGracePeriodSeconds: 10}":                          "terminationGracePeriodSeconds",
		small + "\npod: {volumes: [{name: database, emptyDir: {}}]}":                  "the chart has a volume database itself",
		small + "\ncontainer: {image: other}":                                         "'image' not allowed",
		small + "\npodLabels: {app.kubernetes.io/component: relay}":                   "podLabels.app.kubernetes.io/component cannot be set",
		small + "\npodAnnotations: {shop.example/count: 3}":                           "podAnnotations",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_LISTEN: "0.0.0.0:80"}`:     "ORDERCLOSE_LISTEN",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_INSTANCE: "relay"}`:        "ORDERCLOSE_INSTANCE",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_CONSOLE_OPERATORS: "ann"}`: "ORDERCLOSE_CONSOLE_OPERATORS",
		`env: {ORDERCLOSE_KAFKA_BROKER: "k:1"}`:                                       "'ORDERCLOSE_KAFKA_BROKER'",
		withConsole + "\nconsole: {proxy: {enabled: true, args: [x]}}":                "ORDERCLOSE_CONSOLE_HOSTS is not set",
		withConsole + "\nconsole: {env: {ORDERCLOSE_CONSOLE_HOSTS: c}, proxy: {enabled: true, args: [x]}, ingress: " +
			"{enabled: true}}": "console.ingress.host is not set",
	} {
		if _, err := template(t, "orderclose", "shop", parse(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestChart_TakesALockInTheDatabase(t *testing.T) {
	if _, err := template(t, "orderclose", "shop", parse(t, small+"\ntopics: {compensator: {lock: database}}")); err != nil {
		t.Error(err)
	}
}

// A secret in env would be in a ConfigMap. The error says where the secret belongs, and does not quote it.
func TestChart_RefusesSecretsAsPlainValues(t *testing.T) {
	for _, name := range []string{"DB_DSN", "REDIS_URL", "KAFKA_SASL_PASSWORD", "HTTP_SECRET", "PAYMENT_SECRET"} {
		name = "ORDERCLOSE_" + name
		_, err := template(t, "orderclose", "shop", parse(t, `env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", `+name+`: hunter2}`))
		if err == nil || !strings.Contains(err.Error(), "env."+name+" is a secret") || !strings.Contains(err.Error(), "env."+name+"_FILE") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for values, want := range map[string]string{
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", AWS_SECRET_ACCESS_KEY: hunter2}`: "env.AWS_SECRET_ACCESS_KEY is a secret",
	} {
		if _, err := template(t, "orderclose", "shop", parse(t, values)); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// Variables of others, such as those of Go and of proxies, are passed on.
func TestChart_PassesOtherVariablesOn(t *testing.T) {
	o := rendered(t, `env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", SSL_CERT_FILE: /etc/own/ca.crt, GOMEMLIMIT: 300MiB}`)
	if data := o["ConfigMap orderclose-env"].content["data"].(values); data["SSL_CERT_FILE"] != "/etc/own/ca.crt" {
		t.Errorf("the environment is %v", data)
	}
	for _, p := range o.pods(t) {
		if len(p.Spec.Containers[0].Env) > 0 {
			t.Errorf("%s overrides GOMEMLIMIT", p.of)
		}
	}
}

// With values, a pod fits OpenShift, which chooses the user itself, has Secrets from a CSI driver, and the service account of somebody else.
func TestPod_ValuesAreMergedWithThoseOfTheChart(t *testing.T) {
	all := rendered(t, small+`
pod:
  securityContext: {runAsUser: null, runAsGroup: null, fsGroup: null, supplementalGroups: [1000680000]}
  terminationGracePeriodSeconds: 60
  priorityClassName: orders
  volumes: [{name: vault, csi: {driver: secrets-store.csi.k8s.io, readOnly: true, volumeAttributes: {secretProviderClass: orders}}}]
  topologySpreadConstraints: []
container:
  securityContext: {runAsNonRoot: true}
  volumeMounts: [{name: vault, mountPath: /run/vault, readOnly: true}]
serviceAccount: {create: false, name: own}`)
	if len(of[core.ServiceAccount](t, all)) > 0 {
		t.Error("there is a ServiceAccount")
	}
	for _, p := range all.pods(t) {
		s := p.Spec.SecurityContext
		if s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !is(s.RunAsNonRoot) || s.SeccompProfile == nil ||
			!slices.Equal(s.SupplementalGroups, []int64{1000680000}) {
			t.Errorf("%s: the security context is %+v", p.of, s)
		}
		if p.Spec.ServiceAccountName != "own" || *p.Spec.TerminationGracePeriodSeconds != 60 || p.Spec.PriorityClassName != "orders" ||
			is(p.Spec.AutomountServiceAccountToken) {
			t.Errorf("%s: the pod is %+v", p.of, p.Spec)
		}
		c := p.Spec.Containers[0]
		if !is(c.SecurityContext.RunAsNonRoot) || !is(c.SecurityContext.ReadOnlyRootFilesystem) {
			t.Errorf("%s: the security context of the container is %+v", p.of, c.SecurityContext)
		}
		if v := p.Spec.Volumes; v[0].Name != "config" || len(v) < 3 || v[len(v)-1].CSI == nil || c.VolumeMounts[len(v)-1].MountPath != "/run/vault" ||
			len(c.VolumeMounts) != len(v) {
			t.Errorf("%s: the volumes are %v, mounted at %v", p.of, v, c.VolumeMounts)
		}
		if len(p.Spec.TopologySpreadConstraints) > 0 {
			t.Errorf("%s is spread over %v", p.of, p.Spec.TopologySpreadConstraints)
		}
	}
}

// Annotations and labels of pods are those of all parts and of the one. The chart's own stay.
func TestPod_HasItsAnnotationsAndLabels(t *testing.T) {
	all := rendered(t, whole)
	account := of[core.ServiceAccount](t, all)[0]
	if account.Annotations["eks.amazonaws.com/role-arn"] != "arn:aws:iam::111122223333:role/orders" {
		t.Errorf("the ServiceAccount has %v", account.Annotations)
	}
	for _, p := range all.pods(t) {
		team, inject := "orders", ""
		switch p.Labels["app.kubernetes.io/component"] {
		case "payments":
			team = "oncall"
		case "migrate":
			inject = "false"
		}
		a := p.Annotations
		if a["shop.example/team"] != team || a["sidecar.istio.io/inject"] != inject || a["vault.hashicorp.com/agent-inject"] != "true" || a["checksum/env"] == "" {
			t.Errorf("%s has the annotations %v", p.of, a)
		}
		if p.Labels["shop.example/tier"] != "backend" || p.Labels["app.kubernetes.io/name"] != "orderclose" {
			t.Errorf("%s has the labels %v", p.of, p.Labels)
		}
	}
}

// A field that the chart's template has is merged, replaced or refused by its name. It is never there
// twice, which the API server and kubectl would not notice alike.
func TestPod_NoFieldIsThereTwice(t *testing.T) {
	fields := map[string]any{}
	for _, id := range []string{"Deployment orderclose-relay", "Job"} {
		for name, o := range rendered(t, small) {
			if name == id || o.Kind == id {
				maps.Copy(fields, o.content["spec"].(values)["template"].(values)["spec"].(values))
			}
		}
	}
	for field := range fields {
		v := parse(t, small)
		v["pod"] = values{field: fields[field]}
		if field == "volumes" {
			v["pod"] = values{field: []any{values{"name": "own", "emptyDir": values{}}}}
		}
		files, err := template(t, "orderclose", "orderclose", v)
		if refused := field == "containers" || field == "restartPolicy" || field == "serviceAccountName"; refused != (err != nil) {
			t.Errorf("pod.%s: %v, want an error: %v", field, err, refused)
		}
		all := objects{}
		for name, text := range files {
			all.add(t, name, text) // strict: a field that is there twice is an error
		}
	}
}

// A pod reaches the ports of a server at the addresses that networkPolicy.to names, and nowhere else.
func TestChart_APolicyNamesTheAddressesOfAServer(t *testing.T) {
	for _, n := range of[networking.NetworkPolicy](t, rendered(t, whole)) {
		for _, e := range n.Spec.Egress {
			named, part := len(e.To) > 0 && e.To[0].IPBlock != nil, len(e.To) > 0 && e.To[0].PodSelector != nil // which is payments
			if named != (n.Name == "orderclose-database") || part != (n.Name == "orderclose-payments-callers") {
				t.Errorf("the policy %s goes to %v", n.Name, e.To)
			}
		}
	}
}
