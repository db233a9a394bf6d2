package kubetest

import (
	"strings"
	"testing"
)

// A mistake in the values is refused, with its name.
func TestChart_RefusesWrongValues(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "set it to the brokers",
		small + "\nroles: {release: {enabled: true}}":                                                         "env.ORDERCLOSE_RELEASE_URL is not set",
		small + "\nroles: {notify: {enabled: true}}":                                                          "notify.receivers is empty",
		small + "\nroles: {relays: {replicas: 3}}":                                                            "relays",
		small + "\nroles: {relay: {replicas: many}}":                                                          "replicas",
		small + "\nautoscaling: {closer: {max: 0}}":                                                           "max",
		small + "\nnetworkPolicy: {ports: {kafka: [90920]}}":                                                  "kafka",
		small + "\ntopics: {partitions: 0}":                                                                   "partitions",
		small + "\ntopics: {delay: {default: 30m}}":                                                           "'delay' not allowed",
		small + "\ntopics: {buckets: [10s, 1x]}":                                                              "/topics/buckets/1",
		small + "\ntopics: {buckets: [{length: 5m, drain: true}]}":                                            "'drain' not allowed",
		small + "\ntopics: {delays: {default: 30}}":                                                           "/topics/delays/default",
		small + "\ntopics: {delays: {categories: {virtual: 5 minutes}}}":                                      "/topics/delays/categories/virtual",
		small + "\ntopics: {compensator: {lock: zookeeper}}":                                                  "/topics/compensator/lock",
		small + "\ntopics: {compensator: {lock: {kind: database, name: x}}}":                                  "/topics/compensator/lock",
		small + "\ntopics: {orders: {tabel: shop_orders}}":                                                    "'tabel' not allowed",
		small + "\nroles: {shadow: {enabled: true}}":                                                          "disable roles.closer and roles.compensator",
		small + "\nroles: {console: {enabled: true}}":                                                         "set console.env.ORDERCLOSE_CONSOLE_PROXIES",
		small + "\nconsole: {env: {ORDERCLOSE_CONSOLE_TOKENS_FILE: ann}}":                                     "ORDERCLOSE_CONSOLE_TOKENS_FILE",
		small + "\npod: {containers: []}":                                                                     "pod.containers cannot be set",
		small + "\npod: {restartPolicy: Never}":                                                               "pod.restartPolicy cannot be set",
		small + "\npod: {serviceAccountName: own}":                                                            "set serviceAccount.name",
		small + "\npod: {terminationGracePeriodSeconds: 10}":                                                  "terminationGracePeriodSeconds",
		small + "\npod: {volumes: [{name: database, emptyDir: {}}]}":                                          "the chart has a volume database itself",
		small + "\ncontainer: {image: other}":                                                                 "'image' not allowed",
		small + "\npodLabels: {app.kubernetes.io/component: relay}":                                           "podLabels.app.kubernetes.io/component cannot be set",
		small + "\npodAnnotations: {shop.example/count: 3}":                                                   "podAnnotations",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_LISTEN: "0.0.0.0:80"}`:                             "ORDERCLOSE_LISTEN",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_INSTANCE: "relay"}`:                                "ORDERCLOSE_INSTANCE",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_CONSOLE_ACTIONS: "1"}`:                             "ORDERCLOSE_CONSOLE_ACTIONS",
		`env: {ORDERCLOSE_KAFKA_BROKER: "k:1"}`:                                                               "'ORDERCLOSE_KAFKA_BROKER'",
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", ORDERCLOSE_RELEASE_URL: "https://u:p@s/"}`:                    "into env.ORDERCLOSE_RELEASE_URL_FILE",
		small + "\nroles: {console: {enabled: true}}\nconsole: {env: {ORDERCLOSE_CONSOLE_PROXIES: 10.0.0.7}}": "ORDERCLOSE_CONSOLE_HOSTS is not set",
		small + "\nroles: {console: {enabled: true}}\nconsole: {env: {ORDERCLOSE_CONSOLE_PROXIES: 10.0.0.7, ORDERCLOSE_CONSOLE_HOSTS: c}, ingress: {enabled: true}}": "console.ingress.host is not set",
	} {
		if _, err := template(t, "orderclose", "shop", parse(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestChart_TakesALockInTheDatabase(t *testing.T) {
	for _, lock := range []string{"database", "{kind: database, expiry: 30s}"} {
		if _, err := template(t, "orderclose", "shop", parse(t, small+"\ntopics: {compensator: {lock: "+lock+"}}")); err != nil {
			t.Errorf("%s: %v", lock, err)
		}
	}
}

// A secret in env would be in a ConfigMap. The error says where the secret belongs, and does not quote it.
func TestChart_RefusesSecretsAsPlainValues(t *testing.T) {
	for _, name := range []string{"DB_DSN", "REDIS_URL", "KAFKA_SASL_PASSWORD", "HTTP_SECRET", "PAYMENT_SECRET", "RELEASE_TOKEN"} {
		name = "ORDERCLOSE_" + name
		_, err := template(t, "orderclose", "shop", parse(t, `env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", `+name+`: hunter2}`))
		if err == nil || !strings.Contains(err.Error(), "env."+name+" is a secret") || !strings.Contains(err.Error(), "env."+name+"_FILE") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for values, want := range map[string]string{
		`env: {ORDERCLOSE_KAFKA_BROKERS: "k:1", AWS_SECRET_ACCESS_KEY: hunter2}`: "env.AWS_SECRET_ACCESS_KEY is a secret",
		`{env: {ORDERCLOSE_KAFKA_BROKERS: "k:1"}, roles: {console: {enabled: true}}, console: {tls: true, env: {ORDERCLOSE_CONSOLE_HOSTS: c, ORDERCLOSE_CONSOLE_PROMETHEUS: "https://ann:hunter2@prometheus"}}}`: "console.env.ORDERCLOSE_CONSOLE_PROMETHEUS has a user or a password",
	} {
		if _, err := template(t, "orderclose", "shop", parse(t, values)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
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
