package kubetest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
)

// The proxy in the pod signs users in. The Ingress leads to it, and it alone reaches the console.
func TestConsole_IsReachedThroughItsProxy(t *testing.T) {
	all := rendered(t, whole)
	want := values{"ORDERCLOSE_CONSOLE_LISTEN": "127.0.0.1:9465", "ORDERCLOSE_CONSOLE_HOSTS": "console.example", "ORDERCLOSE_CONSOLE_PROXIES": "127.0.0.1",
		"ORDERCLOSE_CONSOLE_USER_HEADER": "X-Forwarded-Email", "ORDERCLOSE_CONSOLE_OPERATORS": "ann@shop.example"}
	data := all.data("orderclose-console")
	that(t, maps.Equal(data, want), "the environment is %v", data)
	proxy := all.part(t, "console").Spec.Containers[1]
	for _, want := range []string{"--upstream=http://127.0.0.1:9465", "--http-address=0.0.0.0:4180", "--proxy-prefix=/oauth2", "--email-domain=shop.example"} {
		that(t, slices.Contains(proxy.Args, want), "the proxy has no %s: %v", want, proxy.Args)
	}
	port := proxy.Ports[0]
	that(t, proxy.EnvFrom[0].SecretRef.Name == "sign-in" && port.Name == "proxy" && port.ContainerPort == 4180, "the proxy is %+v", proxy)
	spec, _ := all["Service orderclose-console"].content["spec"].(values)
	that(t, spec["ports"].([]any)[0].(values)["targetPort"] == port.Name, "the Service is %+v", spec)
	i := of[networking.Ingress](t, all)[0]
	backend := i.Spec.Rules[0].HTTP.Paths[0].Backend.Service
	that(t, backend.Name == "orderclose-console" && backend.Port.Name == "console" && i.Spec.Rules[0].Host == "console.example" &&
		*i.Spec.IngressClassName == "nginx" && i.Spec.TLS[0].SecretName == "console-tls" &&
		i.Annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off", "the Ingress is %+v", i)
	for _, n := range of[networking.NetworkPolicy](t, all) {
		if n.Name == "orderclose-console" {
			in := n.Spec.Ingress[0]
			that(t, in.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "ingress-nginx" && in.Ports[0].Port.StrVal == port.Name,
				"the policy admits %+v", in)
		}
	}
	for _, p := range all.pods(t) {
		own := strings.HasSuffix(p.of, "-console")
		that(t, (len(p.Spec.Containers[0].EnvFrom) == 2) == own, "%s has the environment of the console: %v", p.of, !own)
	}
}

// By default only kubectl port-forward reaches the console: nothing leads to it.
func TestConsole_IsOnTheLoopbackByDefault(t *testing.T) {
	all := rendered(t, withConsole)
	data := all.data("orderclose-console")
	that(t, maps.Equal(data, values{"ORDERCLOSE_CONSOLE_LISTEN": "127.0.0.1:9465"}), "the environment is %v", data)
	that(t, len(all.part(t, "console").Spec.Containers) == 1 && all["Service orderclose-console"].content == nil &&
		all["NetworkPolicy orderclose-console"].content == nil, "something leads to the console")
}

// A proxy of the user reaches the console itself.
func TestConsole_MayHaveAProxyOfTheUser(t *testing.T) {
	all := rendered(t, withConsole+`
console: {env: {ORDERCLOSE_CONSOLE_LISTEN: "0.0.0.0:9465", ORDERCLOSE_CONSOLE_HOSTS: console.example, ORDERCLOSE_CONSOLE_PROXIES: 10.1.0.0/16,
  ORDERCLOSE_CONSOLE_USER_HEADER: X-Auth-Request-Email}}`)
	ports := all["Service orderclose-console"].content["spec"].(values)["ports"].([]any)
	that(t, ports[0].(values)["targetPort"] == "console" && len(all.part(t, "console").Spec.Containers) == 1, "the Service leads to %v", ports)
}
