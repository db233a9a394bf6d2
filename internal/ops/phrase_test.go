package ops

import "testing"

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
