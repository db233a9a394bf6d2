package storetest

import (
	"testing"
	"time"

	"orderclose"
)

var askedClaims = []claim{
	{"PreviewSaysWhatACloseWouldSayAndChangesNothing", previewSays},
	{"PayOrdersIsTheCompareAndSetOfPay", payOrders},
}

func previewSays(t *testing.T, s *shop) {
	s.migrated()
	due := s.order("due", -time.Minute)
	s.order("later", time.Hour)
	s.order("paid", -time.Minute)
	s.order("cancelled", -time.Minute)
	_, err := s.Pay(t.Context(), "paid", "p")
	s.must(err)
	_, err = s.Cancel(t.Context(), "cancelled")
	s.must(err)
	ids := []string{"later", "due", "nobody's", "paid", "due", "cancelled", "due ", "DUE", ""}
	before, begin := s.state(), s.now()
	out, err := s.PreviewClose(t.Context(), requests(ids...))
	s.must(err)
	want(t, "verdicts", verdicts(out), []string{"later not_due", "due closed", "nobody's not_found", "paid already_paid",
		"due closed", "cancelled already_closed", "due  not_found", "DUE not_found", " not_found"})
	if end := s.now(); !out[1].Due.Equal(due.Due) || out[1].At.Before(begin) || out[1].At.After(end) {
		t.Errorf("%+v, of an order due at %v, between %v and %v", out[1], due.Due, begin, end)
	}
	want(t, "state afterwards", s.state(), before)
	out, err = s.PreviewClose(t.Context(), requests(names("o-%d", 2500)...))
	s.must(err)
	if len(out) != 2500 || out[2499].Verdict != orderclose.NotFound {
		t.Errorf("of 2500: %d outcomes", len(out))
	}
}

func payOrders(t *testing.T, s *shop) {
	s.migrated()
	for _, id := range []string{"a", "paid", "closed", "cancelled"} {
		s.order(id, -time.Minute)
	}
	_, err := s.Pay(t.Context(), "paid", "p")
	s.must(err)
	s.close("closed")
	_, err = s.Cancel(t.Context(), "cancelled")
	s.must(err)
	for _, round := range []string{"once", "again"} {
		out, err := s.PayOrders(t.Context(), requests("closed", "a", "paid", "cancelled", "nobody's", "a"))
		s.must(err)
		want(t, "verdicts "+round, verdicts(out), []string{"closed already_closed", "a already_paid", "paid already_paid",
			"cancelled already_closed", "nobody's not_found", "a already_paid"})
	}
	want(t, "paid orders", s.count("SELECT COUNT(*) FROM orders WHERE status = 1 AND paid_at IS NOT NULL AND version = 2"), 2)
}
