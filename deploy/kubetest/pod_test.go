package kubetest

import (
	"maps"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
)

// With values, a pod fits OpenShift, which chooses the user itself, has Secrets from a CSI driver, and
// the service account of somebody else.
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
		if s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !is(s.RunAsNonRoot) || s.SeccompProfile == nil || !slices.Equal(s.SupplementalGroups, []int64{1000680000}) {
			t.Errorf("%s: the security context is %+v", p.of, s)
		}
		if p.Spec.ServiceAccountName != "own" || *p.Spec.TerminationGracePeriodSeconds != 60 || p.Spec.PriorityClassName != "orders" || is(p.Spec.AutomountServiceAccountToken) {
			t.Errorf("%s: the pod is %+v", p.of, p.Spec)
		}
		c := p.Spec.Containers[0]
		if !is(c.SecurityContext.RunAsNonRoot) || !is(c.SecurityContext.ReadOnlyRootFilesystem) {
			t.Errorf("%s: the security context of the container is %+v", p.of, c.SecurityContext)
		}
		if v := p.Spec.Volumes; v[0].Name != "config" || len(v) < 3 || v[len(v)-1].CSI == nil || c.VolumeMounts[len(v)-1].MountPath != "/run/vault" || len(c.VolumeMounts) != len(v) {
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
		case "notify":
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
