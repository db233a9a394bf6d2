package kubetest

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
)

// By a value the parts that join consumer groups are StatefulSets, and each pod has an instance of its own: its name.
// The autoscaler scales them too.
func TestStatefulSets_GiveEachPodItsInstance(t *testing.T) {
	all := rendered(t, strings.Replace(allOn, "roles: {", "roles: {intake: {enabled: true}, ", 1)+"statefulSets: true\n")
	var names []string
	for _, s := range of[apps.StatefulSet](t, all) {
		names = append(names, strings.TrimPrefix(s.Name, "orderclose-"))
		if s.Spec.PodManagementPolicy != apps.ParallelPodManagement {
			t.Errorf("%s starts its pods one after the other", s.Name)
		}
	}
	if want := []string{"closer", "intake", "relay", "release"}; !slices.Equal(names, want) {
		t.Errorf("the StatefulSets are %q, want %q", names, want)
	}
	for _, p := range all.pods(t) {
		own := 0
		for _, e := range p.Spec.Containers[0].Env {
			if e.Name == "ORDERCLOSE_INSTANCE" && e.ValueFrom.FieldRef.FieldPath == "metadata.name" {
				own++
			}
		}
		if stateful := strings.HasPrefix(p.of, "StatefulSet"); stateful != (own == 1) {
			t.Errorf("%s has its name as its instance %d times", p.of, own)
		}
	}
	for name, s := range all.scaledObjects(t) {
		if s.Spec.ScaleTargetRef.Kind != "StatefulSet" {
			t.Errorf("%s scales the %s %s", name, s.Spec.ScaleTargetRef.Kind, s.Spec.ScaleTargetRef.Name)
		}
	}
}
