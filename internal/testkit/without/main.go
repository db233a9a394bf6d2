// Command without builds and vets this module and its other modules without a room: without the folder below rooms, without the tests
// room_NAME_test.go in other folders, and without the lines of rooms/rooms.go that name it. It changes no file: the compiler reads an overlay.
//
//	without [-modules "dev/bench payments"] [room]...
//	without -list
//
// Without a name it tries each room in turn. With -list it prints what each room has. It runs in the root folder of the repository.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// list is the file with the entries of all rooms.
const list = "rooms/rooms.go"

func main() {
	modules := flag.String("modules", "", "folders of further modules, separated by spaces")
	listed := flag.Bool("list", false, "print what each room has")
	flag.Parse()
	do := func() error { return run(strings.Fields(*modules), flag.Args()) }
	if *listed {
		do = show
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "without:", err)
		os.Exit(1)
	}
}

// show prints the lines of Go of each room without tests, and what it adds to the program.
func show() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "room\tlines\troles\tkeys of topics.yaml")
	for _, r := range rooms.All() {
		files, err := filepath.Glob(filepath.Join("rooms", r.Name, "*.go"))
		lines := 0
		for _, name := range files {
			text, failed := os.ReadFile(name)
			err = errors.Join(err, failed)
			if !strings.HasSuffix(name, "_test.go") {
				lines += bytes.Count(text, []byte("\n"))
			}
		}
		if err != nil {
			return err
		}
		var keys []string
		if r.Settings != nil {
			keys = r.Settings.Keys()
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", r.Name, lines, strings.Join(room.Names(r.Roles), ", "), strings.Join(keys, ", "))
	}
	return w.Flush()
}

func run(modules, names []string) error {
	if len(names) == 0 {
		folders, err := filepath.Glob("rooms/*/room.go")
		if err != nil {
			return err
		}
		for _, file := range folders {
			names = append(names, filepath.Base(filepath.Dir(file)))
		}
	}
	for _, name := range names {
		if err := without(modules, name); err != nil {
			return fmt.Errorf("without room %s: %w", name, err)
		}
	}
	return nil
}

// without builds and vets everything without a room.
func without(modules []string, name string) error {
	dir, err := os.MkdirTemp("", "without-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, name)
	if err != nil {
		return err
	}
	fmt.Println("without room", name)
	for _, args := range [][]string{{"build", "-overlay", overlay, "./..."}, {"vet", "-overlay", overlay, "./..."}} {
		if err := goCommand(".", args...); err != nil {
			return err
		}
	}
	for _, module := range modules {
		chosen, err := imports(module, "github.com/orderclose/orderclose/rooms/"+name)
		if err != nil {
			return err
		}
		if chosen {
			fmt.Println("module", module, "imports the room itself")
			continue
		}
		if err := goCommand(module, "vet", "-overlay", overlay, "./..."); err != nil {
			return fmt.Errorf("module %s: %w", module, err)
		}
	}
	return nil
}

// writeOverlay writes an overlay without the room to dir, and returns the name of its file.
func writeOverlay(dir, name string) (string, error) {
	replace := map[string]string{}
	root, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && (d.Name() == "room_"+name+"_test.go" || strings.HasPrefix(path, filepath.Join("rooms", name)+"/")) {
			replace[filepath.Join(root, path)] = ""
		}
		return err
	})
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(list)
	if err != nil {
		return "", err
	}
	var left strings.Builder
	entries := 0
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "/rooms/"+name+`"`) || strings.HasPrefix(strings.TrimSpace(line), name+".") {
			entries++
			continue
		}
		left.WriteString(line)
	}
	if entries != 2 {
		return "", fmt.Errorf("%s has %d lines of the room, want its import and its entry", list, entries)
	}
	rest, overlay := filepath.Join(dir, "rooms.go"), filepath.Join(dir, "overlay.json")
	replace[filepath.Join(root, list)] = rest
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(rest, []byte(left.String()), 0o600), os.WriteFile(overlay, text, 0o600))
}

// imports reports whether a file of Go below dir imports a package.
func imports(dir, pkg string) (found bool, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		found = found || strings.Contains(string(text), `"`+pkg+`"`)
		return err
	})
	return found, err
}

func goCommand(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil
}
