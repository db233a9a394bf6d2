package testkit

import (
	"database/sql/driver"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Point is a point in the life of a connection at which a fault can strike.
type Point int

const (
	Connect   Point = iota
	Begin           // of a transaction
	Statement       // of any kind
	Write           // a statement that is no SELECT
	Commit
)

// Fault is one way for a database to fail.
type Fault struct {
	Name  string
	At    []Point
	Err   error         // nil: the operation is only slow
	Delay time.Duration // the longest delay; each strike takes a random part of it
	// Sever breaks the connection. The database rolls its open transaction back.
	Sever bool
	// RollsBack makes the database roll the transaction back and keep the connection.
	RollsBack bool
	// Done commits nevertheless: only the answer is lost.
	Done bool
}

func mysqlError(number uint16, message string) error {
	return &mysql.MySQLError{Number: number, Message: message}
}

// AllFaults returns all faults.
func AllFaults() []Fault {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	timeout := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ETIMEDOUT}
	return []Fault{
		{Name: "down", At: []Point{Connect}, Err: refused},
		{Name: "down", At: []Point{Begin, Statement, Commit}, Err: driver.ErrBadConn, Sever: true},
		{Name: "slow", At: []Point{Begin, Statement, Commit}, Delay: 3 * time.Second},
		{Name: "stalled", At: []Point{Statement}, Err: timeout, Delay: 15 * time.Second, Sever: true},
		{Name: "connection lost", At: []Point{Begin, Statement}, Err: mysql.ErrInvalidConn, Sever: true},
		{Name: "session killed", At: []Point{Statement}, Err: mysqlError(1927, "Connection was killed"), Sever: true},
		{Name: "deadlock", At: []Point{Statement}, Err: mysqlError(1213, "Deadlock found when trying to get lock"), RollsBack: true},
		{Name: "deadlock", At: []Point{Commit}, Err: mysqlError(1213, "Deadlock found when trying to get lock"), RollsBack: true},
		{Name: "lock wait", At: []Point{Statement}, Err: mysqlError(1205, "Lock wait timeout exceeded"), Delay: 2 * time.Second},
		{Name: "record changed", At: []Point{Statement}, Err: mysqlError(1020, "Record has changed since last read")},
		{Name: "read-only", At: []Point{Write}, Err: mysqlError(1290, "The server is running with the --read-only option")},
		{Name: "read-only", At: []Point{Write, Commit}, Err: mysqlError(1836, "Running in read-only mode"), RollsBack: true},
		{Name: "disk full", At: []Point{Write}, Err: mysqlError(1021, "Disk full")},
		{Name: "disk full", At: []Point{Write}, Err: mysqlError(1114, "The table 'orders' is full")},
		{Name: "disk full", At: []Point{Commit}, Err: mysqlError(1180, "Got error 28 during COMMIT"), RollsBack: true},
		{Name: "too many connections", At: []Point{Connect}, Err: mysqlError(1040, "Too many connections")},
		{Name: "too many connections", At: []Point{Begin}, Err: driver.ErrBadConn, Sever: true}, // forces a new connection, which Connect then refuses
		{Name: "commit lost before", At: []Point{Commit}, Err: mysql.ErrInvalidConn, Sever: true},
		{Name: "commit lost after", At: []Point{Commit}, Err: mysql.ErrInvalidConn, Sever: true, Done: true},
	}
}

// Faults injects the failures of MySQL and MariaDB into a database/sql driver. It is for tests with testing/synctest, where the database is SQLite.
// Faults.Wrap puts it in front of the driver, and Faults.Set says which faults strike, and how often. The methods are safe for concurrent use.
type Faults struct {
	mu     sync.Mutex
	random *rand.Rand
	share  float64
	faults []Fault
	struck map[string]int
}

// NewFaults returns Faults that never strike, until Set is called. The same seed and the same calls give the same faults.
func NewFaults(seed uint64) *Faults {
	return &Faults{random: rand.New(rand.NewPCG(seed, 0xdb)), struck: map[string]int{}}
}

// Set makes one of the faults strike at a share, from 0 to 1, of the operations that pass one of their points. Without faults, none strikes any more.
func (f *Faults) Set(share float64, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share, f.faults = share, faults
}

// Struck returns how often each fault has struck, by name.
func (f *Faults) Struck() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]int{}
	for name, n := range f.struck {
		all[name] = n
	}
	return all
}

// strike decides whether a fault strikes an operation at one of these points, and returns the fault with its actual delay.
func (f *Faults) strike(points ...Point) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var candidates []Fault
	for _, fault := range f.faults {
		if slices.ContainsFunc(points, func(p Point) bool { return slices.Contains(fault.At, p) }) {
			candidates = append(candidates, fault)
		}
	}
	if len(candidates) == 0 || f.random.Float64() >= f.share {
		return Fault{}, false
	}
	fault := candidates[f.random.IntN(len(candidates))]
	if fault.Delay > 0 {
		fault.Delay = time.Duration(f.random.Int64N(int64(fault.Delay)))
	}
	f.struck[fault.Name]++
	return fault, true
}
