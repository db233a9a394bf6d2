package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// timers keeps each message in the memory of the worker and sets a timer of Go for it. Nothing
// is stored. The driver process hands the messages over through a socket, as if it were another
// part of the same program.
type timers struct {
	run  run
	idle chan net.Conn
}

func newTimers(r run) way { return &timers{run: r, idle: make(chan net.Conn, 1000)} }

func (t *timers) socket() string { return filepath.Join(t.run.Dir, "timers.sock") }

func (t *timers) open(context.Context) error { return nil }

// publish writes due time and body of each message, and waits for a byte that accepts them.
func (t *timers) publish(ctx context.Context, messages []message) error {
	conn, err := t.connect(ctx)
	if err != nil {
		return err
	}
	buf := binary.LittleEndian.AppendUint64(nil, uint64(len(messages)))
	for _, m := range messages {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(m.Due.UnixNano()))
		buf = append(buf, m.Body...)
	}
	_, err = conn.Write(buf)
	if err == nil {
		_, err = io.ReadFull(conn, buf[:1])
	}
	if err != nil {
		conn.Close()
		return err
	}
	t.idle <- conn
	return nil
}

func (t *timers) connect(ctx context.Context) (net.Conn, error) {
	select {
	case conn := <-t.idle:
		return conn, nil
	default:
	}
	var dialer net.Dialer
	for limit := time.Now().Add(5 * time.Second); ; {
		conn, err := dialer.DialContext(ctx, "unix", t.socket())
		if err == nil || time.Now().After(limit) || !sleep(ctx, 10*time.Millisecond) {
			return conn, err
		}
	}
}

func (t *timers) consume(ctx context.Context, to *receipts) error {
	if err := os.Remove(t.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", t.socket())
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go to.flushOften(ctx)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go serveTimers(conn, to)
	}
}

// serveTimers sets a timer for each message of a connection.
func serveTimers(conn net.Conn, to *receipts) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	var number [8]byte
	for {
		if _, err := io.ReadFull(in, number[:]); err != nil {
			return
		}
		for range binary.LittleEndian.Uint64(number[:]) {
			body := make([]byte, bodySize)
			if _, err := io.ReadFull(in, number[:]); err != nil {
				return
			}
			due := time.Unix(0, int64(binary.LittleEndian.Uint64(number[:])))
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			time.AfterFunc(time.Until(due), func() { to.add(body, time.Now()) })
		}
		if _, err := conn.Write(number[:1]); err != nil {
			return
		}
	}
}

func (t *timers) settings(context.Context) map[string]string {
	return map[string]string{"timers": "time.AfterFunc in the worker; nothing is stored"}
}

func (t *timers) close() {
	for {
		select {
		case conn := <-t.idle:
			conn.Close()
		default:
			return
		}
	}
}
