package bisect

import "sync"

const (
	// maxRemembered limits the remembered suspects. Beyond it all are forgotten; then it
	// only takes longer to prove that an order is at fault.
	maxRemembered = 1000
	// maxChargeable is how many suspects may fail between two answers and still be charged with the
	// failure. If more fail, the store itself is probably in trouble.
	maxChargeable = 3
)

// Suspects is the rule of blame: a failure is proved to be an order's fault if the order failed
// alone, and other orders got verdicts in the calls before and after. This distinguishes
// an order that breaks the store from a store that is down or fails at random. Suspects
// remembers the orders that failed alone, and counts their proved failures.
//
// The zero value is ready to use. It is safe for concurrent use. The items may be
// other things than orders, and the store may be any service that answers for them: then
// an answer counts as a verdict.
type Suspects struct {
	mu          sync.Mutex
	proved      map[string]int  // proved failures of each suspect
	sinceAnswer map[string]bool // suspects that failed since the last answer; false: already blamed for it
}

// Answered records that the store works: it gave verdicts on these orders, or a probe
// succeeded. The orders stop being suspects. The failure of each other suspect since the last
// call of Answered is proved, unless more than maxChargeable suspects failed since then.
func (s *Suspects) Answered(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.proved, id)
		delete(s.sinceAnswer, id)
	}
	if len(s.sinceAnswer) <= maxChargeable { //mutant:blame-random-failures
		for id, open := range s.sinceAnswer {
			if open {
				s.proved[id]++ //mutant:hang-never-blamed
			}
		}
	}
	clear(s.sinceAnswer)
}

// Failed records that an order failed alone, and makes it a suspect. proved is the number of its
// earlier failures that are proved. again reports whether it failed alone before, and the store
// gave an answer in between.
func (s *Suspects) Failed(id string) (proved int, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	proved, known := s.proved[id]
	if !known && len(s.proved) >= maxRemembered || s.proved == nil {
		s.proved, s.sinceAnswer = map[string]int{}, map[string]bool{}
	}
	_, failed := s.sinceAnswer[id]
	s.proved[id], s.sinceAnswer[id] = proved, true
	return proved, known && !failed
}

// Blamed records that an order has used up an attempt. It stays a suspect, and its failures are
// counted from zero.
func (s *Suspects) Blamed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.proved[id]; known {
		s.proved[id], s.sinceAnswer[id] = 0, false
	}
}

// Has reports whether an order is a suspect.
func (s *Suspects) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.proved[id]
	return known
}
