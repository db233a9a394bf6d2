//go:build linux

// Package power cuts the power of a disk under a server, as far as one kernel can show it. The disk is an ext4 on a loop device. A cut
// stops the file system without writing its log: what no program has synced, and the kernel has not written back, is gone.
//
// Before a cut, WriteBack writes some pages of some files, so that what survives is not only the beginning of a file. It cannot show
// what a disk does that lies about a sync, nor a sector that is written in part.
//
// The package needs root, and mkfs.ext4.
package power

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// Disk is a file system of its own, mounted on a folder.
type Disk struct {
	Dir   string
	image string
}

const (
	ext4Shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	noLogFlush   = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	page         = 4096
)

// ErrNoDisk means that no disk can be made or mounted here.
var ErrNoDisk = errors.New("no power is cut: that needs root, mkfs.ext4, and a machine on which root may mount loop devices")

// New creates a disk of so many bytes in the file image, which takes only the space that is used, and mounts it on dir.
func New(image, dir string, size int64) (*Disk, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNoDisk
	}
	d := &Disk{Dir: dir, image: image}
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close(), os.MkdirAll(dir, 0o700))
	}
	if err != nil {
		return nil, err
	}
	if err = run("mkfs.ext4", "-q", image); err == nil {
		err = d.mount()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDisk, err)
	}
	return d, nil
}

func (d *Disk) mount() error {
	if err := run("mount", "-o", "loop", d.image, d.Dir); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(d.Dir, "lost+found")) // a server takes it for data
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// WriteBack writes some pages of about half of the files to the disk, and the sizes of all files. A page before them may not be written.
func (d *Disk) WriteBack(r *rand.Rand) error {
	err := filepath.WalkDir(d.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || r.IntN(2) == 0 {
			return ignoreGone(err)
		}
		f, err := os.Open(path)
		if err != nil {
			return ignoreGone(err)
		}
		defer f.Close()
		info, err := f.Stat()
		for range 1 + r.IntN(3) {
			if pages := (info.Size() + page - 1) / page; err == nil && pages > 0 {
				err = writeBack(f, r.Int64N(pages)*page, (1+r.Int64N(8))*page)
			}
		}
		return err
	})
	return errors.Join(err, d.commit())
}

// ignoreGone returns the error of a walk, unless a server has removed the file.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func writeBack(f *os.File, offset, n int64) error {
	return unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
}

// commit syncs a file of its own, which stays empty, so the disk may be full. That commits the log of the file system, with the sizes of
// files whose pages were written back.
func (d *Disk) commit() error {
	path := filepath.Join(d.Dir, ".power")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(os.Chtimes(path, time.Time{}, time.Now()), f.Sync(), f.Close())
}

// Cut cuts the power: from now on no program can write. The servers on the disk must be killed then, before Return.
func (d *Disk) Cut() error {
	f, err := os.Open(d.Dir)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, code := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flags))); code != 0 {
		return fmt.Errorf("cut the power of %s: %w", d.Dir, code)
	}
	return nil
}

// Return mounts the disk again, with what has survived.
func (d *Disk) Return() error {
	if err := d.Close(); err != nil {
		return err
	}
	return d.mount()
}

// Sync writes everything to the disk.
func (d *Disk) Sync() error {
	f, err := os.Open(d.Dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// Close unmounts the disk. It waits for processes that still have files there.
func (d *Disk) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return process.Await(ctx, func(context.Context) error { return run("umount", d.Dir) })
}
