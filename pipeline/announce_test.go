package pipeline

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestSetDelays_HasThoseOfTheNewFile(t *testing.T) {
	a := &App{o: Options{TopicsFile: filepath.Join(t.TempDir(), "topics.yaml")}}
	var p wire.Process
	for _, c := range []struct {
		delay time.Duration
		file  string
		roles []Role
		says  bool
	}{
		{time.Hour, "", []Role{Relay, Closer}, false}, // no order is made by them
		{time.Hour, "", AllRoles(), true},
		{time.Hour, "", AllRoles(), false},
		{time.Minute, "one", AllRoles(), true},
		{time.Minute, "a comment", AllRoles(), false},
		{time.Second, "another", AllRoles(), true},
	} {
		if c.file != "" {
			if err := os.WriteFile(a.o.TopicsFile, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cfg := &config.Config{}
		cfg.Delays.Default = c.delay
		a.live.Store(cfg)
		if says := a.setDelays(&p, c.roles); says != c.says {
			t.Errorf("%+v: %v", c, says)
		}
		if !c.says {
			continue
		}
		want := wire.Process{Delays: map[string]int64{"": c.delay.Milliseconds()}}
		if c.file != "" {
			want.File = fmt.Sprintf("%x", sha256.Sum256([]byte(c.file)))[:10]
		}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
	}
}
