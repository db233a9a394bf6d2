package kubetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// deployment returns the pods of the Deployment of a part, and fails without it.
func (all objects) deployment(t *testing.T, part string) pod {
	t.Helper()
	for _, p := range all.pods(t) {
		if p.of == "Deployment orderclose-"+part {
			return p
		}
	}
	t.Fatalf("there is no Deployment orderclose-%s", part)
	return pod{}
}

// The console listens to the Ingress only, with the host of the Ingress and the users of its own Secret.
func TestConsole_IsReachedThroughItsIngress(t *testing.T) {
	all := rendered(t, whole)
	c := all.deployment(t, "console").Spec.Containers[0]
	if !slices.Equal(c.Args, []string{"run", "console", "--config=/etc/orderclose/topics.yaml"}) {
		t.Errorf("the console runs %v", c.Args)
	}
	data, _ := all["ConfigMap orderclose-console"].content["data"].(values)
	for name, want := range map[string]string{
		"LISTEN": "0.0.0.0:9465", "HOSTS": "console.example", "PROXIES": "10.1.0.0/16", "OPERATORS": "ann", "WEB_CONFIG_FILE": "/run/secrets/console/web.yml",
	} {
		if have := data["ORDERCLOSE_CONSOLE_"+name]; have != want {
			t.Errorf("ORDERCLOSE_CONSOLE_%s is %v, want %s", name, have, want)
		}
	}
	port := core.ContainerPort{Name: "console", ContainerPort: 9465}
	if !slices.Contains(c.Ports, port) {
		t.Errorf("the ports are %v, want %v", c.Ports, port)
	}
	var service *core.Service
	for _, s := range of[core.Service](t, all) {
		if s.Name == "orderclose-console" {
			service = s
		}
	}
	if service == nil || service.Spec.Ports[0].TargetPort.StrVal != port.Name {
		t.Fatalf("the Service is %+v", service)
	}
	i := of[networking.Ingress](t, all)[0]
	backend := i.Spec.Rules[0].HTTP.Paths[0].Backend.Service
	if backend.Name != service.Name || backend.Port.Name != service.Spec.Ports[0].Name || i.Spec.Rules[0].Host != "console.example" ||
		*i.Spec.IngressClassName != "nginx" || i.Spec.TLS[0].SecretName != "console-tls" || i.Annotations["nginx.ingress.kubernetes.io/proxy-buffering"] != "off" {
		t.Errorf("the Ingress is %+v", i)
	}
	for _, n := range of[networking.NetworkPolicy](t, all) {
		if n.Name == "orderclose-console" && (n.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "ingress-nginx" ||
			n.Spec.Ingress[0].Ports[0].Port.StrVal != port.Name) {
			t.Errorf("the policy admits %+v", n.Spec.Ingress)
		}
	}
}

// Only the console has its environment and its Secret. A change of it restarts no other part.
func TestConsole_ItsSettingsAreItsOwn(t *testing.T) {
	was, now := rendered(t, whole), rendered(t, strings.Replace(whole, "10.1.0.0/16", "10.2.0.0/16", 1))
	for _, p := range was.pods(t) {
		own := p.of == "Deployment orderclose-console"
		if has := len(p.Spec.Containers[0].EnvFrom) == 2; has != own {
			t.Errorf("%s has the environment of the console: %v", p.of, has)
		}
		if has := slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.Name == "console" }); has != own {
			t.Errorf("%s has the Secret of the console: %v", p.of, has)
		}
		for _, other := range now.pods(t) {
			if changed := p.Annotations["checksum/env"] != other.Annotations["checksum/env"]; p.of == other.of && changed != own {
				t.Errorf("%s: restarted is %v", p.of, changed)
			}
		}
	}
}

// On the loopback, only kubectl port-forward reaches the console, and it needs neither host nor TLS.
func TestConsole_OnTheLoopbackNeedsNeitherHostNorTLS(t *testing.T) {
	all := rendered(t, small+`
roles: {console: {enabled: true}}
console: {env: {ORDERCLOSE_CONSOLE_LISTEN: "127.0.0.1:9465", ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE: null}}`)
	data, _ := all["ConfigMap orderclose-console"].content["data"].(values)
	if len(data) != 1 || data["ORDERCLOSE_CONSOLE_LISTEN"] != "127.0.0.1:9465" {
		t.Errorf("the environment is %v", data)
	}
}

// With a certificate of its own the console needs no addresses of proxies.
func TestConsole_TerminatesTLSItself(t *testing.T) {
	all := rendered(t, small+`
roles: {console: {enabled: true}}
console: {tls: true, env: {ORDERCLOSE_CONSOLE_HOSTS: console.example}}`)
	data, _ := all["ConfigMap orderclose-console"].content["data"].(values)
	if data["ORDERCLOSE_CONSOLE_LISTEN"] != "0.0.0.0:9465" || data["ORDERCLOSE_CONSOLE_PROXIES"] != nil {
		t.Errorf("the environment is %v", data)
	}
}

// Grafana's sidecar finds each dashboard by its label.
func TestDashboards_AreConfigMapsWithALabel(t *testing.T) {
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	maps := map[string]*core.ConfigMap{}
	for _, m := range of[core.ConfigMap](t, rendered(t, whole)) {
		if m.Labels["grafana_dashboard"] == "1" && m.Annotations["grafana_folder"] == "orders" {
			maps[m.Name] = m
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		m := maps["orderclose-dashboard-"+strings.TrimSuffix(filepath.Base(file), ".json")]
		if m == nil || m.Data["orderclose-"+filepath.Base(file)] != string(text) || !json.Valid(text) {
			t.Errorf("%s is in no ConfigMap", file)
		}
	}
	if len(maps) != len(files) {
		t.Errorf("there are %d ConfigMaps and %d dashboards", len(maps), len(files))
	}
}
