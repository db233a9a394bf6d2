package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/admin"
	"github.com/orderclose/orderclose/pipeline"
)

// operate does what an operator does: it pauses closing, and finds the one overdue order, which nobody closes meanwhile. Its App connects
// to the servers, and does not run.
func operate(ctx context.Context, servers pipeline.Servers, cfg *pipeline.Config, logger *slog.Logger, meanwhile func() error) error {
	app, err := pipeline.New(pipeline.Options{Config: cfg, Servers: servers, Logger: logger})
	if err != nil {
		return err
	}
	defer app.Close()
	a, err := admin.New(app, "ada@shop")
	if err != nil {
		return err
	}
	pause := admin.PauseRequest{For: time.Minute, Reason: "Ada looks at an order"}
	if _, err := a.Pause(ctx, pause); err != nil {
		return err
	}
	late, err := a.Overdue(ctx)
	if err != nil {
		return err
	}
	for _, o := range late.Paused {
		h, err := a.History(ctx, o.ID)
		if err != nil {
			return err
		}
		fmt.Printf("operator: %s is %s\n", o.ID, h.Now)
	}
	if err := meanwhile(); !errors.Is(err, orderclose.ErrPaused) {
		return fmt.Errorf("closed on read during a pause: %w", err)
	}
	ended, err := a.Resume(ctx, "")
	fmt.Printf("operator: resumed %d pause\n", len(ended))
	return err
}
