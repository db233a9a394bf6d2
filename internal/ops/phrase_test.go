package ops

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

func TestWithConfig_GoesIntoEachCommandThatReadsTheFile(t *testing.T) {
	const file, flag = "/etc/our $1 topics.yaml", " --config '/etc/our $1 topics.yaml'"
	for in, want := range map[string]string{
		"start one with orderclose run relay; see orderclose runbook kafka-is-down": "start one with orderclose" + flag + " run relay; see orderclose runbook kafka-is-down",
		"orderclose dlq ls\norderclose status":                                      "orderclose" + flag + " dlq ls\norderclose" + flag + " status",
		"orderclose --config x status":                                              "orderclose --config x status",
		"columns that orderclose did not create":                                    "columns that orderclose did not create",
		"orderclose notify, orderclose version, stop":                               "orderclose notify, orderclose version, stop",
	} {
		if got := WithConfig(in, file); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := WithConfig("orderclose status", ""); got != "orderclose status" {
		t.Error(got)
	}
}

func TestWriteJSON_ChangesTextsForPeople(t *testing.T) {
	type row struct {
		Fix    string `json:"fix"`
		Reason string `json:"reason"`
	}
	in := row{Fix: `see "x\": orderclose status`, Reason: "orderclose status"}
	for _, file := range []string{"", `it's "our" \ topics.yaml`} {
		var b bytes.Buffer
		var got row
		if err := errors.Join(WriteJSON(&b, in, file), json.Unmarshal(b.Bytes(), &got)); err != nil {
			t.Fatal(err)
		}
		if want := (row{WithConfig(in.Fix, file), in.Reason}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
