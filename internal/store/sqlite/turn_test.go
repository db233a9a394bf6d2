package sqlite_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Another transaction has the only connection.
func TestReadOverdue_EndsAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sqlite.Memory)
		must.Do(t, s.Migrate(t.Context()))
		other := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
		began := time.Now()
		_, err := s.ReadOverdue(t.Context(), overdue.Window{To: began})
		expect.That(t, errors.Is(err, overdue.ErrSlow) && errors.Is(err, orderclose.ErrUnavailable) && time.Since(began) == 2*time.Second,
			"after %v: %v", time.Since(began), err)
		must.Do(t, other.Rollback())
		must.Get(s.ReadOverdue(t.Context(), overdue.Window{To: began}))(t)
	})
}
