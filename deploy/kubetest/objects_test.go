package kubetest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kedacore/keda/v2/version"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// object is an object of the Kubernetes API.
type object struct {
	from, text string // its file, and its YAML
	APIVersion string
	Kind       string
	Name       string
	content    values
}

// objects are objects by kind and name.
type objects map[string]object

var separator = regexp.MustCompile(`(?m)^---$`)

// add adds the objects of a YAML text.
func (all objects) add(t *testing.T, from, text string) {
	t.Helper()
	for _, doc := range separator.Split(text, -1) {
		content := values{}
		if err := yaml.UnmarshalStrict([]byte(doc), &content); err != nil {
			t.Fatalf("%s: %v\n%s", from, err, doc)
		}
		if len(content) == 0 {
			continue
		}
		o := object{from: from, text: doc, content: content}
		o.APIVersion, _ = content["apiVersion"].(string)
		o.Kind, _ = content["kind"].(string)
		if meta, ok := content["metadata"].(values); ok {
			o.Name, _ = meta["name"].(string)
		}
		if o.APIVersion == "" || o.Kind == "" || o.Name == "" {
			t.Fatalf("%s: no apiVersion, kind or name:\n%s", from, doc)
		}
		_, twice := all[o.Kind+" "+o.Name]
		that(t, !twice, "%s: there is a second %s %s", from, o.Kind, o.Name)
		all[o.Kind+" "+o.Name] = o
	}
}

// types are the API types of all objects but ScaledObjects.
var types = map[string]func() any{
	"v1 ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1 Service":                              func() any { return new(core.Service) },
	"v1 ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"apps/v1 StatefulSet":                     func() any { return new(apps.StatefulSet) },
	"apps/v1 Deployment":                      func() any { return new(apps.Deployment) },
	"batch/v1 Job":                            func() any { return new(batch.Job) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"networking.k8s.io/v1 Ingress":            func() any { return new(networking.Ingress) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

// check decodes the object strictly, as the API server does: it refuses a field that the type
// does not have, also if only the case of its letters is wrong.
func (o object) check(t *testing.T) (any, error) {
	t.Helper()
	if o.APIVersion == "keda.sh/v1alpha1" && o.Kind == "ScaledObject" {
		keda, err := schema()
		must(t, err)
		return o.content, keda.Validate(o.content)
	}
	newType := types[o.APIVersion+" "+o.Kind]
	if newType == nil {
		t.Fatalf("%s: this test has no type for %s %s", o.from, o.APIVersion, o.Kind)
	}
	text, err := yaml.Marshal(o.content)
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	must(t, err)
	into := newType()
	strict, err := json.UnmarshalStrict(text, into)
	return into, errors.Join(append(strict, err)...)
}

// decode is check, and reports the error.
func (o object) decode(t *testing.T) any {
	t.Helper()
	into, err := o.check(t)
	that(t, err == nil, "%s: %s %s: %v", o.from, o.Kind, o.Name, err)
	return into
}

// of returns the objects of a type, sorted by name.
func of[T any](t *testing.T, all objects) []*T {
	t.Helper()
	var found []*T
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if all[id].Kind == "ScaledObject" {
			continue
		}
		if one, ok := all[id].decode(t).(*T); ok {
			found = append(found, one)
		}
	}
	return found
}

// pod is the template of the pods of a Deployment, StatefulSet or Job. A Job has no selector and no replicas.
type pod struct {
	of       string
	selector map[string]string
	replicas *int32
	core.PodTemplateSpec
}

// pods returns the pods of all parts and Jobs.
func (all objects) pods(t *testing.T) []pod {
	t.Helper()
	pods := all.parts(t)
	for _, j := range of[batch.Job](t, all) {
		pods = append(pods, pod{of: "Job " + j.Name, PodTemplateSpec: j.Spec.Template})
	}
	return pods
}

// parts returns the pods of all Deployments and StatefulSets.
func (all objects) parts(t *testing.T) []pod {
	t.Helper()
	var pods []pod
	for _, d := range of[apps.Deployment](t, all) {
		pods = append(pods, pod{"Deployment " + d.Name, d.Spec.Selector.MatchLabels, d.Spec.Replicas, d.Spec.Template})
	}
	for _, s := range of[apps.StatefulSet](t, all) {
		pods = append(pods, pod{"StatefulSet " + s.Name, s.Spec.Selector.MatchLabels, s.Spec.Replicas, s.Spec.Template})
	}
	return pods
}

// part returns the pods of the Deployment of a part, and fails without it.
func (all objects) part(t *testing.T, name string) pod {
	t.Helper()
	for _, p := range all.parts(t) {
		if p.of == "Deployment orderclose-"+name {
			return p
		}
	}
	t.Fatalf("there is no Deployment orderclose-%s", name)
	return pod{}
}

// data returns the data of a ConfigMap.
func (all objects) data(name string) values {
	data, _ := all["ConfigMap "+name].content["data"].(values)
	return data
}

// scaledObject is a ScaledObject of KEDA, with the fields that tests read.
type scaledObject struct {
	Spec struct {
		ScaleTargetRef                   struct{ Kind, Name string }
		MinReplicaCount, MaxReplicaCount int
		Fallback                         any
		Triggers                         []struct {
			Type, MetricType string
			Metadata         map[string]string
		}
	}
}

func (all objects) scaledObjects(t *testing.T) map[string]scaledObject {
	t.Helper()
	found := map[string]scaledObject{}
	for _, o := range all {
		if o.Kind != "ScaledObject" {
			continue
		}
		text, err := yaml.Marshal(o.content)
		must(t, err)
		var s scaledObject
		must(t, yaml.Unmarshal(text, &s))
		found[o.Name] = s
	}
	return found
}

// The schema is that of the CustomResourceDefinition in KEDA's module. KEDA's Go types would
// link its whole operator; the package version has no dependencies and makes the module known.
var _ = version.Version

var schema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2").Output()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/bases/keda.sh_scaledobjects.yaml"))
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema values }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	v := crd.Spec.Versions[0]
	if v.Name != "v1alpha1" {
		return nil, fmt.Errorf("the first version is %s", v.Name)
	}
	v.Schema.OpenAPIV3Schema["properties"].(values)["metadata"] = values{"type": "object"}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("scaledobject.json", closed(v.Schema.OpenAPIV3Schema)); err != nil {
		return nil, err
	}
	return c.Compile("scaledobject.json")
})

// closed returns the schema without unknown fields in objects whose fields it lists.
func closed(schema any) any {
	switch s := schema.(type) {
	case values:
		for key, sub := range s {
			s[key] = closed(sub)
		}
		if _, lists := s["properties"].(values); lists && s["type"] == "object" && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
	case []any:
		for i := range s {
			s[i] = closed(s[i])
		}
	}
	return schema
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// that fails the test if holds is false. The format says what is wrong.
func that(t testing.TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}
