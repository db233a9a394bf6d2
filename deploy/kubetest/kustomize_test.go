package kubetest

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const kustomizeDir = "../k8s"

// built builds a kustomization.
func built(t *testing.T, dir string) objects {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	must(t, err)
	text, err := m.AsYaml()
	must(t, err)
	all := objects{}
	all.add(t, dir, string(text))
	return all
}

// componentsNeed are the variables that components need.
var componentsNeed = []string{"ORDERCLOSE_PAYMENT_SECRET_FILE=/run/secrets/services/payment-secret"}

// everything builds the base with all components.
func everything(t *testing.T) objects {
	t.Helper()
	root, err := filepath.Abs(kustomizeDir)
	must(t, err)
	overlay := t.TempDir()
	relative, err := filepath.Rel(overlay, root)
	must(t, err)
	components, err := filepath.Glob(filepath.Join(root, "components/*"))
	must(t, err)
	text := "resources: [ROOT/base]\ncomponents:\n"
	for _, c := range components {
		if name := filepath.Base(c); name != "monitoring-sweeper" {
			text += "- ROOT/components/" + name + "\n"
		}
	}
	text += "configMapGenerator: [{name: orderclose-env, behavior: merge, literals: [\"" + strings.Join(componentsNeed, "\", \"") + "\"]}]\n"
	must(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "ROOT", relative)), 0o600))
	return built(t, overlay)
}

// allOn are values for everything that the chart can install, with the defaults of the rest. Tests of rooms add to it, and to componentsNeed.
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

// A release's hashes: kustomize has its own for the environment and payments.yaml, and none for Jobs.
var (
	jobHash  = regexp.MustCompile(`(-(?:migrate|topics))-[0-9a-f]{8}\b`)
	fileHash = regexp.MustCompile(`(-env|-payments)-[0-9a-z]{10}\b`)
	checksum = regexp.MustCompile(`(?m)^ *annotations:\n +checksum/env: .*\n`)
)

// documents returns the text of each object of the chart, without hashes.
func documents(t *testing.T, text string) []string {
	t.Helper()
	files, err := template(t, "orderclose", "orderclose", parse(t, text))
	must(t, err)
	var docs []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := checksum.ReplaceAllString(jobHash.ReplaceAllString(files[name], "$1"), "")
		for _, doc := range separator.Split(text, -1) {
			if doc = strings.TrimSpace(doc); doc != "" {
				docs = append(docs, doc)
			}
		}
	}
	return docs
}

// generated returns the content of the files of the folder k8s that are generated.
func generated(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	add := func(name, text string) {
		if files[name] == "" {
			files[name] = "# Generated from the Helm chart: UPDATE_GOLDEN=1 make kubetest ARGS='-run Generated'\n"
		} else {
			files[name] += "---\n"
		}
		files[name] += strings.TrimSpace(text) + "\n"
	}
	type named struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Data             map[string]string
	}
	decode := func(doc string) (o named) {
		must(t, yaml.Unmarshal([]byte(doc), &o))
		return o
	}
	for folder, text := range map[string]string{"base": small, "sweeper": sweepsAlone(t, "monitoring: {enabled: true}\n")} {
		for _, doc := range documents(t, text) {
			switch o := decode(doc); {
			case o.Metadata.Name == "orderclose-topics" && o.Kind == "ConfigMap":
				add(folder+"/topics.yaml", o.Data["topics.yaml"])
			case o.Kind == "ConfigMap":
				var lines []string
				for _, name := range slices.Sorted(maps.Keys(o.Data)) {
					lines = append(lines, name+"="+o.Data[name])
				}
				add(folder+"/orderclose.env", strings.Join(lines, "\n"))
			case strings.HasPrefix(o.APIVersion, "monitoring.coreos.com/"):
				add("components/monitoring-sweeper/monitoring.yaml", doc)
			default:
				add(folder+"/parts.yaml", doc)
			}
		}
	}
	ofRooms := rolesOfRooms(t)
	for _, doc := range documents(t, allOn) {
		o := decode(doc)
		part := strings.TrimPrefix(o.Metadata.Name, "orderclose-")
		_, isRoom := ofRooms[part]
		switch {
		case strings.HasPrefix(o.APIVersion, "keda.sh/"):
			add("components/autoscaling/scaledobjects.yaml", doc)
		case strings.HasPrefix(o.APIVersion, "monitoring.coreos.com/"):
			add("components/monitoring/monitoring.yaml", doc)
		case isRoom:
			add("components/"+part+"/"+part+".yaml", doc)
		default:
			if o.Metadata.Name == "orderclose-payments" && o.Kind == "ConfigMap" {
				add("components/payments/payments.yaml", o.Data["payments.yaml"])
			} else if strings.HasPrefix(o.Metadata.Name+"-", "orderclose-payments-") {
				add("components/payments/parts.yaml", doc)
			}
		}
	}
	return files
}

// The folder k8s has no objects of its own. UPDATE_GOLDEN=1 writes its files.
func TestKustomize_FilesAreGeneratedFromTheChart(t *testing.T) {
	for name, want := range generated(t) {
		name = filepath.Join(kustomizeDir, name)
		if os.Getenv("UPDATE_GOLDEN") == "1" {
			must(t, os.WriteFile(name, []byte(want), 0o644))
		}
		if have, err := os.ReadFile(name); err != nil || string(have) != want {
			t.Errorf("%s is not what the chart renders (%v): its first line says how to write it again", name, err)
		}
	}
}

// Everything that kustomize builds is what Helm installs.
func TestKustomize_BuildsWhatHelmInstalls(t *testing.T) {
	helm := objects{}
	helm.add(t, "chart", strings.Join(documents(t, allOn), "\n---\n"))
	kustomize := everything(t)
	for id, o := range kustomize {
		delete(kustomize, id)
		text, err := yaml.Marshal(o.content)
		must(t, err)
		kustomize.add(t, o.from, fileHash.ReplaceAllString(string(text), "$1"))
	}
	for id, o := range helm {
		other, ok := kustomize[id]
		if !ok {
			t.Errorf("kustomize builds no %s", id)
			continue
		}
		if o.Kind == "ConfigMap" { // the generated files begin with a comment
			data := other.content["data"].(values)
			for key, value := range data {
				data[key] = comment.ReplaceAllString(value.(string), "")
			}
		}
		if !reflect.DeepEqual(o.content, other.content) {
			h, _ := yaml.Marshal(o.content)
			k, _ := yaml.Marshal(other.content)
			t.Errorf("%s differs; Helm:\n%s\nkustomize:\n%s", id, h, k)
		}
	}
	for id := range kustomize {
		if _, ok := helm[id]; !ok {
			t.Errorf("Helm installs no %s", id)
		}
	}
}

var comment = regexp.MustCompile(`^#.*\n`)

// The example overrides what a cluster must, and keeps the name of the ConfigMap that parts reload.
func TestKustomize_TheExampleOverridesTheBase(t *testing.T) {
	o, version := built(t, filepath.Join(kustomizeDir, "example")), load(t).Metadata.AppVersion
	for _, p := range o.pods(t) {
		c := p.Spec.Containers[0]
		if c.Image != "registry.example/orderclose:"+version {
			t.Errorf("%s: the image is %s", p.of, c.Image)
		}
		env := o["ConfigMap "+c.EnvFrom[0].ConfigMapRef.Name]
		if data, _ := env.content["data"].(values); data["ORDERCLOSE_KAFKA_BROKERS"] == "kafka:9092" || data["ORDERCLOSE_LISTEN"] != "0.0.0.0:9464" {
			t.Errorf("%s: the environment is %v", p.of, data)
		}
	}
	data, _ := o["ConfigMap orderclose-topics"].content["data"].(values)
	topics := parse(t, data["topics.yaml"].(string))
	for name, s := range o.scaledObjects(t) {
		if most := int(topics["partitions"].(float64)); s.Spec.MaxReplicaCount > most || strings.HasSuffix(name, "-relay") && s.Spec.MaxReplicaCount != most {
			t.Errorf("%s has at most %d replicas, and topics.yaml %d partitions", name, s.Spec.MaxReplicaCount, most)
		}
	}
	for id, other := range o {
		if meta := other.content["metadata"].(values); meta["namespace"] != "orderclose" {
			t.Errorf("%s is in the namespace %v", id, meta["namespace"])
		}
	}
}
