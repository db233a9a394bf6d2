package webhook

// What the tests with a pipeline share with the others. Package pipeline imports this one.
type Receiver = receiver

const Secret = secret

var EachDatabase = eachDatabase

func (r *receiver) Take() []request { return r.take() }

func (r *receiver) Requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func (r request) Event() string { return r.event }

func (r request) Verify() error { return r.verify() }
