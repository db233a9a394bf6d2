package kubetest

import (
	"slices"
	"strings"
	"testing"
)

func TestShadow_RunsWithoutClosers(t *testing.T) {
	all := rendered(t, small+`
roles:
  shadow: {enabled: true, secrets: {database: orderclose-database-readonly}}
  closer: {enabled: false}
  compensator: {enabled: false}
  outbox: {enabled: false}
jobs: {migrate: {enabled: false}}`)
	p := all.deployment(t, "shadow")
	if !slices.Equal(p.Spec.Containers[0].Args, []string{"run", "shadow", "--config=/etc/orderclose/topics.yaml"}) {
		t.Errorf("the shadow run is %v", p.Spec.Containers[0].Args)
	}
	var secrets []string
	for _, v := range p.Spec.Volumes {
		if v.Secret != nil {
			secrets = append(secrets, v.Secret.SecretName)
		}
	}
	if !slices.Equal(secrets, []string{"orderclose-kafka", "orderclose-database-readonly"}) {
		t.Errorf("its Secrets are %v", secrets)
	}
	if have := all.pods(t); len(have) != 3 { // relay, shadow, topics
		t.Errorf("there are %d pods", len(have))
	}
}

func TestShadow_IsRefusedBesideClosers(t *testing.T) {
	_, err := template(t, "orderclose", "shop", parse(t, small+"\nroles: {shadow: {enabled: true}}"))
	if err == nil || !strings.Contains(err.Error(), "disable roles.closer and roles.compensator") {
		t.Error(err)
	}
}
