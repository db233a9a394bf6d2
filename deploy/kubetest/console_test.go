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

// The proxy in the pod signs users in. The Ingress leads to it, and it alone reaches the console.
func TestConsole_IsReachedThroughItsProxy(t *testing.T) {
	all := rendered(t, whole)
	spec := all.deployment(t, "console").Spec
	c, proxy := spec.Containers[0], spec.Containers[1]
	if !slices.Equal(c.Args, []string{"run", "console", "--config=/etc/orderclose/topics.yaml"}) {
		t.Errorf("the console runs %v", c.Args)
	}
	data, _ := all["ConfigMap orderclose-console"].content["data"].(values)
	for name, want := range map[string]string{
		"LISTEN": "127.0.0.1:9465", "HOSTS": "console.example", "PROXIES": "127.0.0.1", "USER_HEADER": "X-Forwarded-Email", "OPERATORS": "ann@shop.example",
	} {
		if have := data["ORDERCLOSE_CONSOLE_"+name]; have != want {
			t.Errorf("ORDERCLOSE_CONSOLE_%s is %v, want %s", name, have, want)
		}
	}
	for _, want := range []string{"--upstream=http://127.0.0.1:9465", "--http-address=0.0.0.0:4180", "--proxy-prefix=/oauth2", "--email-domain=shop.example"} {
		if !slices.Contains(proxy.Args, want) {
			t.Errorf("the proxy has no %s: %v", want, proxy.Args)
		}
	}
	if proxy.EnvFrom[0].SecretRef.Name != "sign-in" || !is(proxy.SecurityContext.ReadOnlyRootFilesystem) {
		t.Errorf("the proxy is %+v", proxy)
	}
	port := core.ContainerPort{Name: "proxy", ContainerPort: 4180}
	if !slices.Contains(proxy.Ports, port) {
		t.Errorf("the ports are %v, want %v", proxy.Ports, port)
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

// Only the console has its environment. A change of it restarts no other part.
func TestConsole_ItsSettingsAreItsOwn(t *testing.T) {
	was, now := rendered(t, whole), rendered(t, strings.Replace(whole, "ann@shop", "ben@shop", 1))
	for _, p := range was.pods(t) {
		own := p.of == "Deployment orderclose-console"
		if has := len(p.Spec.Containers[0].EnvFrom) == 2; has != own {
			t.Errorf("%s has the environment of the console: %v", p.of, has)
		}
		for _, other := range now.pods(t) {
			if changed := p.Annotations["checksum/env"] != other.Annotations["checksum/env"]; p.of == other.of && changed != own {
				t.Errorf("%s: restarted is %v", p.of, changed)
			}
		}
	}
}

// By default only kubectl port-forward reaches the console: nothing leads to it.
func TestConsole_IsOnTheLoopbackByDefault(t *testing.T) {
	all := rendered(t, small+"\nroles: {console: {enabled: true}}")
	data, _ := all["ConfigMap orderclose-console"].content["data"].(values)
	if len(data) != 1 || data["ORDERCLOSE_CONSOLE_LISTEN"] != "127.0.0.1:9465" {
		t.Errorf("the environment is %v", data)
	}
	if len(all.deployment(t, "console").Spec.Containers) != 1 || all["Service orderclose-console"].content != nil ||
		all["NetworkPolicy orderclose-console"].content != nil {
		t.Error("something leads to the console")
	}
}

// A proxy of the user reaches the console itself.
func TestConsole_MayHaveAProxyOfTheUser(t *testing.T) {
	all := rendered(t, small+`
roles: {console: {enabled: true}}
console: {env: {ORDERCLOSE_CONSOLE_LISTEN: "0.0.0.0:9465", ORDERCLOSE_CONSOLE_HOSTS: console.example, ORDERCLOSE_CONSOLE_PROXIES: 10.1.0.0/16,
  ORDERCLOSE_CONSOLE_USER_HEADER: X-Auth-Request-Email}}`)
	ports := all["Service orderclose-console"].content["spec"].(values)["ports"].([]any)
	if ports[0].(values)["targetPort"] != "console" || len(all.deployment(t, "console").Spec.Containers) != 1 {
		t.Errorf("the Service leads to %v", ports)
	}
}

// Grafana's sidecar finds each dashboard by its label.
func TestDashboards_AreConfigMapsWithALabel(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chartDir, "dashboards/*.json"))
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
