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
		small + "\nroles: {sweeper: {every: 1d}}":                                     "/roles/sweeper/every",
		small + "\nautoscaling: {closer: {max: 0}}":                                   "max",
		small + "\nnetworkPolicy: {ports: {kafka: [90920]}}":                          "kafka",
		small + "\ntopics: {delay: {default: 30m}}":                                   "'delay' not allowed",
		small + "\ntopics: {buckets: [10s, 1x]}":                                      "/topics/buckets/1",
		small + "\ntopics: {delays: {categories: {virtual: 5 minutes}}}":              "/topics/delays/categories/virtual",
		small + "\ntopics: {compensator: {lock: {kind: database}}}":                   "/topics/compensator/lock",
		withConsole + "\nconsole: {ingress: {enabled: true, host: c}}":                "nothing signs users in",
		withConsole + everywhere + "}":                                                "set console.env.ORDERCLOSE_CONSOLE_PROXIES",
		withConsole + "\nconsole: {proxy: {enabled: true}}":                           "console.proxy.args is empty",
		withConsole + everywhere + ", proxy: {enabled: true, args: [x]}}":             "on the loopback only",
		small + "\nconsole: {env: {ORDERCLOSE_CONSOLE_TOKENS_FILE: ann}}":             "ORDERCLOSE_CONSOLE_TOKENS_FILE",
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
		_, err := template(t, "orderclose", "shop", parse(t, text))
		that(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want an error with %q", text, err, want)
	}
}

// A secret in env would be in a ConfigMap. The error says where the secret belongs, and does not quote it.
func TestChart_RefusesSecretsAsPlainValues(t *testing.T) {
	for name, want := range map[string]string{
		"ORDERCLOSE_DB_DSN": "env.ORDERCLOSE_DB_DSN_FILE", "ORDERCLOSE_REDIS_URL": "env.ORDERCLOSE_REDIS_URL_FILE",
		"ORDERCLOSE_KAFKA_SASL_PASSWORD": "env.ORDERCLOSE_KAFKA_SASL_PASSWORD_FILE", "ORDERCLOSE_HTTP_SECRET": "env.ORDERCLOSE_HTTP_SECRET_FILE",
		"ORDERCLOSE_PAYMENT_SECRET": "env.ORDERCLOSE_PAYMENT_SECRET_FILE", "AWS_SECRET_ACCESS_KEY": "serviceAccount.annotations",
	} {
		_, err := template(t, "orderclose", "shop", parse(t, `env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", `+name+`: hunter2}`))
		that(t, err != nil && strings.Contains(err.Error(), "env."+name+" is a secret") && strings.Contains(err.Error(), want) &&
			!strings.Contains(err.Error(), "hunter2"), "%s: %v", name, err)
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
	that(t, len(of[core.ServiceAccount](t, all)) == 0, "there is a ServiceAccount")
	for _, p := range all.pods(t) {
		s, c, v := p.Spec.SecurityContext, p.Spec.Containers[0], p.Spec.Volumes
		that(t, s.RunAsUser == nil && s.RunAsGroup == nil && s.FSGroup == nil && is(s.RunAsNonRoot) && s.SeccompProfile != nil &&
			slices.Equal(s.SupplementalGroups, []int64{1000680000}), "%s: the security context is %+v", p.of, s)
		that(t, p.Spec.ServiceAccountName == "own" && *p.Spec.TerminationGracePeriodSeconds == 60 && p.Spec.PriorityClassName == "orders" &&
			!is(p.Spec.AutomountServiceAccountToken) && len(p.Spec.TopologySpreadConstraints) == 0, "%s: the pod is %+v", p.of, p.Spec)
		that(t, is(c.SecurityContext.RunAsNonRoot) && is(c.SecurityContext.ReadOnlyRootFilesystem),
			"%s: the security context of the container is %+v", p.of, c.SecurityContext)
		that(t, len(v) > 2 && v[0].Name == "config" && v[len(v)-1].CSI != nil && len(c.VolumeMounts) == len(v) &&
			c.VolumeMounts[len(v)-1].MountPath == "/run/vault", "%s: the volumes are %v, mounted at %v", p.of, v, c.VolumeMounts)
	}
}

// Annotations and labels of pods are those of all parts and of the one. The chart's own stay.
func TestPod_HasItsAnnotationsAndLabels(t *testing.T) {
	all := rendered(t, whole)
	account := of[core.ServiceAccount](t, all)[0].Annotations
	that(t, account["eks.amazonaws.com/role-arn"] == "arn:aws:iam::111122223333:role/orders", "the ServiceAccount has %v", account)
	for _, p := range all.pods(t) {
		team, inject := "orders", ""
		switch p.Labels["app.kubernetes.io/component"] {
		case "payments":
			team = "oncall"
		case "migrate":
			inject = "false"
		}
		a := p.Annotations
		that(t, a["shop.example/team"] == team && a["sidecar.istio.io/inject"] == inject && a["vault.hashicorp.com/agent-inject"] == "true" &&
			a["checksum/env"] != "", "%s has the annotations %v", p.of, a)
		that(t, p.Labels["shop.example/tier"] == "backend" && p.Labels["app.kubernetes.io/name"] == "orderclose", "%s has the labels %v", p.of, p.Labels)
	}
}

// A field that the chart's template has is merged, replaced or refused by its name. It is never there
// twice, which the API server and kubectl would not notice alike.
func TestPod_NoFieldIsThereTwice(t *testing.T) {
	fields := map[string]any{}
	for _, o := range rendered(t, small) {
		if o.Kind == "Deployment" || o.Kind == "Job" {
			maps.Copy(fields, o.content["spec"].(values)["template"].(values)["spec"].(values))
		}
	}
	for field := range fields {
		v := parse(t, small)
		v["pod"] = values{field: fields[field]}
		if field == "volumes" {
			v["pod"] = values{field: []any{values{"name": "own", "emptyDir": values{}}}}
		}
		files, err := template(t, "orderclose", "orderclose", v)
		refused := field == "containers" || field == "restartPolicy" || field == "serviceAccountName"
		that(t, refused == (err != nil), "pod.%s: %v, want an error: %v", field, err, refused)
		all := objects{}
		for name, text := range files {
			all.add(t, name, text) // strict: a field that is there twice is an error
		}
	}
}

// By default a pod reaches each database that works.
func TestChart_APolicyOpensThePortsOfEachDatabase(t *testing.T) {
	for _, n := range of[networking.NetworkPolicy](t, rendered(t, small)) {
		if n.Name == "orderclose-database" {
			ports := n.Spec.Egress[0].Ports
			that(t, len(ports) == 2 && ports[0].Port.IntValue() == 3306 && ports[1].Port.IntValue() == 5432, "the ports of the database are %v", ports)
			return
		}
	}
	t.Error("no policy opens the port of the database")
}

// A pod reaches the ports of a server at the addresses that networkPolicy.to names, and nowhere else. It reaches DNS where its pods listen.
func TestChart_APolicyNamesTheAddressesOfAServer(t *testing.T) {
	for _, n := range of[networking.NetworkPolicy](t, rendered(t, whole)) {
		for _, e := range n.Spec.Egress {
			named, part := len(e.To) > 0 && e.To[0].IPBlock != nil, len(e.To) > 0 && e.To[0].PodSelector != nil // which is payments
			that(t, n.Name != "orderclose" || len(e.Ports) == 2 && e.Ports[0].Port.IntValue() == 5353, "DNS at %v", e.Ports)
			that(t, named == (n.Name == "orderclose-database") && part == (n.Name == "orderclose-payments-callers"), "%s goes to %v", n.Name, e.To)
		}
	}
}
