//go:build linux

package main

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
)

// stockService is the service that keeps the shop's stock. It notes every call.
type stockService struct {
	server *http.Server
	url    string
	mode   atomic.Int32 // one of the modes below

	mu    sync.Mutex
	calls []checker.Release
	seen  map[checker.Release]bool
}

// Modes of the service.
const (
	serviceWell int32 = iota
	serviceHangs
	serviceFails
	serviceLosesAnswers // it does what is asked, and answers with an error
)

func startStockService() (*stockService, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &stockService{url: "http://" + l.Addr().String() + "/release", seen: map[checker.Release]bool{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

// releases returns the calls. Repeats of a call are left out.
func (s *stockService) releases() []checker.Release {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]checker.Release{}, s.calls...)
}

// count returns the number of calls that are no repeats.
func (s *stockService) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// ServeHTTP implements http.Handler.
func (s *stockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Order    string `json:"order_id"`
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
		Key      string `json:"idempotency_key"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	mode := s.mode.Load()
	switch mode {
	case serviceHangs:
		for s.mode.Load() == serviceHangs && r.Context().Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
	case serviceFails:
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	}
	release := checker.Release{Order: call.Order, SKU: call.SKU, Key: call.Key, Quantity: call.Quantity}
	s.mu.Lock()
	again := s.seen[release]
	if !again {
		s.seen[release] = true
		s.calls = append(s.calls, release)
	}
	s.mu.Unlock()
	if mode == serviceLosesAnswers {
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	if again {
		w.WriteHeader(http.StatusConflict)
	}
}
