package closing

import "sync"

// maxRemembered bounds how many suspects are remembered. Beyond it all are
// forgotten: then it only takes longer to prove that an order is at fault.
const maxRemembered = 1000

// maxPending is how many suspects may fail between two calls that succeed, so that it
// is their fault. A store that is in trouble makes suspects of more orders.
const maxPending = 3

// Suspects remembers which orders failed alone, and how often they did while the store
// worked: the call before and the call after brought verdicts on others. That tells an
// order that breaks the store from a store that is down, or fails at random.
//
// The zero value remembers no order. Suspects may be used from any goroutine. What is
// said here of orders and a store holds for other items that a service answers for.
type Suspects struct {
	mu       sync.Mutex
	answered uint64 // calls that brought a verdict, ever
	silent   bool   // in the last batch that failed nobody got a verdict
	seen     map[string]suspicion
	pending  map[string]bool // suspects that failed since the last call that brought a verdict
	trouble  bool            // since then a call for orders that are no suspects failed
}

// suspicion is what is known about one suspect.
type suspicion struct {
	failures int    // alone, while the store worked
	answered uint64 // calls that had brought a verdict when it last failed
}

// Heard notes that the store works: it gave verdicts on these orders, or says so.
func (s *Suspects) Heard(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.seen, id)
		delete(s.pending, id)
	}
	if !s.trouble && len(s.pending) <= maxPending {
		for id := range s.pending {
			now := s.seen[id]
			now.failures++
			s.seen[id] = now
		}
	}
	clear(s.pending)
	s.answered++
	s.trouble, s.silent = false, false
}

// FailedTogether notes that a call failed for orders that are no suspects.
func (s *Suspects) FailedTogether() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = true
}

// Failed notes that an order failed alone. failures is how often it had before, while
// the store worked. This failure counts as soon as the store has shown that it works,
// if the order had as long as a call may take. since says whether another order got a
// verdict since this one failed before.
func (s *Suspects) Failed(id string, heardOut bool) (failures int, since bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := s.seen[id]
	if !known && len(s.seen) >= maxRemembered || s.seen == nil {
		s.seen, s.pending = map[string]suspicion{}, map[string]bool{}
	}
	since = known && s.answered > now.answered
	now.answered = s.answered
	s.seen[id] = now
	if heardOut {
		s.pending[id] = true
	}
	return now.failures, since
}

// Blamed notes that an order got the verdict Failed. A suspect stays one, and its
// next failures are counted from zero.
func (s *Suspects) Blamed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[id]; known {
		s.seen[id] = suspicion{answered: s.answered}
	}
	delete(s.pending, id)
}

// Has says whether an order is a suspect.
func (s *Suspects) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.seen[id]
	return known
}

// Silent says whether nothing was heard since SetSilent.
func (s *Suspects) Silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// SetSilent notes that in a batch nobody got a verdict. Then the next batch should begin
// with one order: it is enough to see whether the store is still down, and a batch with an
// order on which the store hangs would keep a circuit breaker open.
func (s *Suspects) SetSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}
