package bisect

import "sync"

// maxRemembered limits the remembered suspects. Beyond it all are forgotten; then it
// only takes longer to prove that an order is at fault.
const maxRemembered = 1000

// maxPending is how many suspects may fail between two successful calls and still be
// charged with the failure. If more fail, the store itself is probably in trouble.
const maxPending = 3

// Suspects remembers which orders failed alone, and how often while the store worked:
// in the calls before and after, other orders got verdicts. This distinguishes an
// order that breaks the store from a store that is down or fails at random.
//
// The zero value is ready to use. It is safe for concurrent use. The items may be
// other things than orders, and the store may be any service that answers for them: then
// an answer counts as a verdict.
type Suspects struct {
	mu           sync.Mutex
	answered     uint64 // number of calls of StoreAnswered
	noVerdicts   bool   // no order got a verdict in the last batch that failed
	suspects     map[string]suspicion
	pending      map[string]bool // suspects that failed since the last call of StoreAnswered
	othersFailed bool            // a call for orders that are no suspects failed since then
}

// suspicion is the record of one suspect.
type suspicion struct {
	failures int    // failures alone, while the store worked
	answered uint64 // Suspects.answered when it last failed
}

// StoreAnswered records that the store works: it gave verdicts on these orders, or a probe
// succeeded. The orders stop being suspects. Each other suspect that failed since the last
// call of StoreAnswered is charged with one failure. No suspect is charged if more than
// maxPending suspects failed since then, or if FailedTogether was called.
func (s *Suspects) StoreAnswered(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.suspects, id)
		delete(s.pending, id)
	}
	if !s.othersFailed && len(s.pending) <= maxPending {
		for id := range s.pending {
			now := s.suspects[id]
			now.failures++
			s.suspects[id] = now
		}
	}
	clear(s.pending)
	s.answered++
	s.othersFailed, s.noVerdicts = false, false
}

// FailedTogether records that a call for orders that are no suspects failed.
func (s *Suspects) FailedTogether() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.othersFailed = true
}

// Failed records that an order failed alone, and makes it a suspect. If the call had the
// longest timeout, the next call of StoreAnswered may charge the order with this failure.
// failures is the number of failures that the order was charged with so far, without this
// one. since reports whether the order failed before, and StoreAnswered was called since.
func (s *Suspects) Failed(id string, longestTimeout bool) (failures int, since bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := s.suspects[id]
	if !known && len(s.suspects) >= maxRemembered || s.suspects == nil {
		s.suspects, s.pending = map[string]suspicion{}, map[string]bool{}
	}
	since = known && s.answered > now.answered
	now.answered = s.answered
	s.suspects[id] = now
	if longestTimeout {
		s.pending[id] = true
	}
	return now.failures, since
}

// Blamed records that an order got the verdict Failed. It stays a suspect, and its
// failures are counted from zero.
func (s *Suspects) Blamed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.suspects[id]; known {
		s.suspects[id] = suspicion{answered: s.answered}
	}
	delete(s.pending, id)
}

// Has reports whether an order is a suspect.
func (s *Suspects) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.suspects[id]
	return known
}

// NoVerdicts reports whether SetNoVerdicts was called since the last call of
// StoreAnswered.
func (s *Suspects) NoVerdicts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noVerdicts
}

// SetNoVerdicts records that no order of a batch got a verdict. The next batch should
// then begin with one order. This is enough to see whether the store is still down; a
// whole batch with an order on which the store hangs would keep a circuit breaker
// open.
func (s *Suspects) SetNoVerdicts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noVerdicts = true
}
