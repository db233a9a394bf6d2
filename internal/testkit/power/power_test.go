//go:build linux

package power

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func newDisk(t *testing.T) *Disk {
	t.Helper()
	dir := t.TempDir()
	d, err := New(filepath.Join(dir, "disk"), filepath.Join(dir, "data"), 64<<20)
	if errors.Is(err, ErrNoDisk) {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, d.Close()) })
	return d
}

// cut cuts the power and returns what a file has afterwards.
func cut(t *testing.T, d *Disk, name string) ([]byte, error) {
	t.Helper()
	must.Do(t, d.Cut())
	_, err := os.Create(filepath.Join(d.Dir, "later"))
	expect.That(t, err != nil, "a file was created after the cut")
	must.Do(t, d.Return())
	return os.ReadFile(filepath.Join(d.Dir, name))
}

func pageOf(c byte) []byte { return bytes.Repeat([]byte{c}, page) }

// A later page survives, and an earlier one does not: recovery must look at every page.
func TestCut_MayKeepALaterPageAndLoseAnEarlierOne(t *testing.T) {
	d := newDisk(t)
	f := must.Get(os.Create(filepath.Join(d.Dir, "log")))(t)
	must.Get(f.Write(pageOf('a')))(t)
	must.Do(t, f.Sync())
	must.Get(f.Write(bytes.Join([][]byte{pageOf('b'), pageOf('c'), pageOf('d')}, nil)))(t)
	must.Do(t, writeBack(f, 3*page, page))
	must.Do(t, d.commit())
	must.Do(t, f.Close())
	got := must.Get(cut(t, d, "log"))(t)
	expect.That(t, len(got) == 4*page && bytes.Equal(got[:page], pageOf('a')) && bytes.Equal(got[3*page:], pageOf('d')), "%d bytes survive", len(got))
	expect.That(t, bytes.Equal(got[page:2*page], pageOf(0)), "the second page survives: %q", got[page:page+10])
}

func TestCut_LosesWhatNobodyHasSynced(t *testing.T) {
	d := newDisk(t)
	synced := must.Get(os.Create(filepath.Join(d.Dir, "synced")))(t)
	must.Get(synced.Write(pageOf('a')))(t)
	must.Do(t, synced.Sync())
	must.Get(synced.Write(pageOf('b')))(t)
	must.Do(t, os.WriteFile(filepath.Join(d.Dir, "never"), pageOf('n'), 0o600))
	must.Do(t, synced.Close())
	got := must.Get(cut(t, d, "synced"))(t)
	expect.That(t, bytes.Equal(got, pageOf('a')), "%d bytes survive", len(got))
	_, err := os.Stat(filepath.Join(d.Dir, "never"))
	expect.That(t, errors.Is(err, os.ErrNotExist), "a file that was never synced: %v", err)
}

// A seed writes pages of some files back, and not of others.
func TestWriteBack_WritesSomePages(t *testing.T) {
	d := newDisk(t)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, name := range names {
		f := must.Get(os.Create(filepath.Join(d.Dir, name)))(t)
		must.Do(t, f.Sync())
		must.Get(f.Write(bytes.Repeat([]byte{'x'}, 40*page)))(t)
		must.Do(t, f.Close())
	}
	must.Do(t, d.WriteBack(rand.New(rand.NewPCG(1, 2))))
	_ = must.Get(cut(t, d, ".power"))(t)
	some, whole := 0, 0
	for _, name := range names {
		got := must.Get(os.ReadFile(filepath.Join(d.Dir, name)))(t)
		if n := bytes.Count(got, []byte{'x'}); n == 40*page {
			whole++
		} else if n > 0 {
			some++
		}
	}
	expect.That(t, some > 0 && whole < len(names), "%d files have some pages, and %d all", some, whole)
}

// A server that fills its disk is cut off like any other.
func TestWriteBack_WorksOnAFullDisk(t *testing.T) {
	d := newDisk(t)
	must.Do(t, os.WriteFile(filepath.Join(d.Dir, "a"), pageOf('a'), 0o600))
	f := must.Get(os.Create(filepath.Join(d.Dir, "filler")))(t)
	for err := error(nil); err == nil; {
		_, err = f.Write(pageOf('f'))
	}
	must.Do(t, f.Close())
	must.Do(t, d.WriteBack(rand.New(rand.NewPCG(1, 2))))
	must.Do(t, os.Remove(filepath.Join(d.Dir, "filler")))
}
