package orderclose_test

import (
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/orderclose/orderclose"

// imports returns the direct imports of each package of this module without its
// tests. Paths inside the module have no module prefix.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out := goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	all := map[string][]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for i, f := range fields {
			fields[i] = strings.TrimPrefix(f, module+"/")
		}
		all[fields[0]] = fields[1:]
	}
	return all
}

// links returns all direct and indirect dependencies of a package.
func links(t *testing.T, pkg string) []string {
	t.Helper()
	return strings.Fields(goList(t, "-deps", pkg))
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

func under(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }

func TestStructure_PartsNeverImportOneAnother(t *testing.T) {
	parts := []string{"producer", "delayrelay", "closer", "compensator", "outbox", "release", "internal/shadow", "internal/intake"}
	all := imports(t)
	for _, part := range parts {
		if all[part] == nil {
			t.Errorf("package %s does not exist", part)
		}
		for _, imported := range all[part] {
			if slices.Contains(parts, imported) {
				t.Errorf("%s imports %s", part, imported)
			}
		}
	}
}

// A client of Kafka does not know what is done with the records that it reads.
func TestStructure_KafkaDoesNotImportTheEngine(t *testing.T) {
	if slices.Contains(imports(t)["internal/kafka"], "internal/partition") {
		t.Error("internal/kafka imports internal/partition")
	}
}

func TestStructure_TheRootImportsTheStandardLibraryOnly(t *testing.T) {
	for _, imported := range imports(t)[module] {
		if strings.Contains(strings.Split(imported, "/")[0], ".") || under(imported, "internal") {
			t.Errorf("the root package imports %s", imported)
		}
	}
}

func TestStructure_EachLibraryHasItsHome(t *testing.T) {
	homes := map[string][]string{
		"github.com/segmentio/kafka-go":          {"internal/kafka"},
		"gorm.io":                                {"internal/store", "internal/testkit/storetest"},
		"github.com/go-redsync/redsync/v4":       {"compensator", "pipeline"},
		"golang.org/x/crypto":                    {"internal/console/access"},
		"github.com/prometheus/exporter-toolkit": {"internal/console/access"},
		"github.com/yuin/goldmark":               {"internal/console"},
		"internal/cli":                           {"cmd", "internal/cli"},
		"go.opentelemetry.io/otel/sdk":           {"internal/tracing/otlp"},
		"go.opentelemetry.io/otel/exporters":     {"internal/tracing/otlp"},
		"go.opentelemetry.io/contrib":            {"internal/tracing/otlp"},
		"github.com/XSAM/otelsql":                {"internal/tracing/otlp"},
		"github.com/twmb/franz-go/pkg/kmsg":      {"internal/kafka", "internal/testkit", "pipeline/pipelinetest", "cmd/orderclose-dev"},
		"github.com/twmb/franz-go/pkg/kadm":      {"internal/testkit"},
		// What the example shop needs, the product does not.
		"github.com/hashicorp/golang-lru/v2":  {"examples/checkout/ordercache"},
		"github.com/bits-and-blooms/bloom/v3": {"examples/checkout/idfilter"},
		// The checker judges the parts and takes nothing of theirs; only what runs
		// the checker may know the fakes.
		"github.com/twmb/franz-go/pkg/kfake": {"pipeline/pipelinetest"},
		"github.com/alicebob/miniredis/v2":   {"pipeline/pipelinetest"},
	}
	for pkg, imported := range imports(t) {
		for _, i := range imported {
			for library, allowed := range homes {
				if under(i, library) && !slices.ContainsFunc(allowed, func(home string) bool { return under(pkg, home) }) {
					t.Errorf("%s imports %s, which only %v may", pkg, i, allowed)
				}
			}
		}
	}
}

func TestStructure_TheCheckerSharesNoCodeWithTheParts(t *testing.T) {
	checker := module + "/internal/testkit/checker"
	for _, dep := range links(t, checker) {
		if under(dep, module) && dep != checker {
			t.Errorf("the checker links %s", dep)
		}
	}
}

// An example shows what programs outside of this module can write.
func TestStructure_ExamplesImportNothingInternal(t *testing.T) {
	for pkg, imported := range imports(t) {
		if i := slices.IndexFunc(imported, func(i string) bool { return under(i, "internal") }); under(pkg, "examples") && i >= 0 {
			t.Errorf("%s imports %s", pkg, imported[i])
		}
	}
}

// Who may open the console does not depend on what the console shows.
func TestStructure_AccessToTheConsoleKnowsTheSettingsOnly(t *testing.T) {
	all := imports(t)
	for _, imported := range all["internal/console/access"] {
		if all[imported] != nil && imported != "internal/config" {
			t.Errorf("internal/console/access imports %s", imported)
		}
	}
}

func TestStructure_ProductionLinksNoFake(t *testing.T) {
	for _, dep := range links(t, "./cmd/orderclose") {
		for _, fake := range []string{
			"github.com/twmb/franz-go/pkg/kfake", "github.com/alicebob/miniredis", "modernc.org/sqlite", "github.com/glebarez/sqlite",
			module + "/internal/store/sqlite", module + "/internal/testkit", module + "/pipeline/pipelinetest",
		} {
			if under(dep, fake) {
				t.Errorf("cmd/orderclose links %s", dep)
			}
		}
	}
}

// heavyLibraries are those that a shop need not compile for a few calls of ours.
var heavyLibraries = []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/contrib", "google.golang.org/grpc", "gorm.io", "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/spf13/cobra", "github.com/prometheus/client_golang", "github.com/prometheus/exporter-toolkit"}

func TestStructure_TheProducerIsLightToImport(t *testing.T) {
	for _, dep := range links(t, "./producer") {
		for _, heavy := range append(heavyLibraries, module+"/internal/partition") {
			if under(dep, heavy) {
				t.Errorf("producer links %s", dep)
			}
		}
	}
}

// A program that embeds a relay need not link what shows pages, checks passwords and parses commands.
func TestStructure_ThePipelineLinksNoConsole(t *testing.T) {
	for _, dep := range links(t, "./pipeline") {
		for _, shown := range []string{
			module + "/internal/console", module + "/internal/cli", "html/template", "golang.org/x/crypto/bcrypt", "golang.org/x/net/trace",
			"github.com/prometheus/exporter-toolkit", "github.com/mwitkow/go-conntrack", "github.com/spf13/cobra", "github.com/yuin/goldmark",
			"go.opentelemetry.io/otel/sdk", "google.golang.org/grpc",
		} {
			if under(dep, shown) {
				t.Errorf("pipeline links %s", dep)
			}
		}
	}
}

func TestStructure_PackagesForOtherServicesAreLightToImport(t *testing.T) {
	for _, pkg := range []string{"./closer/httpclose", "./closer/payment"} {
		for _, dep := range links(t, pkg) {
			for _, heavy := range append(heavyLibraries, "github.com/segmentio/kafka-go", module+"/internal/partition", module+"/compensator") {
				if under(dep, heavy) || dep == module+"/closer" {
					t.Errorf("%s links %s", pkg, dep)
				}
			}
		}
	}
}

// listedFiles matches a line of a package comment that says what is in one or more files.
var listedFiles = regexp.MustCompile(`^\t(\w+\.go(?:, \w+\.go)*) +\S`)

// A package comment that lists files lists each Go file of its folder once, except tests and a doc.go.
// A list of test files is not compared.
func TestStructure_PackageCommentsListTheFilesOfTheirFolder(t *testing.T) {
	files, comments := map[string][]string{}, map[string]string{} // by folder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(notRead, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		folder := filepath.Dir(path)
		if entry.Name() != "doc.go" {
			files[folder] = append(files[folder], entry.Name())
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err == nil {
			comments[folder] += file.Doc.Text()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, comment := range comments {
		var listed []string
		for line := range strings.Lines(comment) {
			if m := listedFiles.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "_test.go") {
				listed = append(listed, strings.Split(m[1], ", ")...)
			}
		}
		if slices.Sort(listed); listed != nil && !slices.Equal(listed, files[folder]) {
			t.Errorf("the package comment of %s lists\n%v, its folder has\n%v", folder, listed, files[folder])
		}
	}
}

// What is exported can be used outside of this module: it mentions no type of an internal package, unless
// a public package has an alias for that type.
func TestStructure_ProgramsCanNameEachTypeOfThePublicPackages(t *testing.T) {
	var public []*types.Package
	compiled := map[string]string{} // the files with the types of packages
	for line := range strings.Lines(goList(t, "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./pipeline/...", "./closer/...", "./producer")) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[path] = file
	}
	importing := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	aliases := map[string]bool{}
	for path := range compiled {
		if !under(path, module) || isInternal(path) {
			continue
		}
		p, err := importing.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		public = append(public, p)
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() && o.Type() != types.Unalias(o.Type()) {
				aliases[types.Unalias(o.Type()).String()] = true
			}
		}
	}
	if len(public) < 10 {
		t.Errorf("%d packages are public", len(public))
	}
	for _, p := range public {
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				for _, n := range unnameable(o, aliases) {
					t.Errorf("%s.%s mentions %s, which programs outside of this module cannot name", p.Path(), name, n)
				}
			}
		}
	}
}

func isInternal(path string) bool { return slices.Contains(strings.Split(path, "/"), "internal") }

// unnameable returns the internal types without an alias that a declaration mentions where programs see it.
func unnameable(o types.Object, aliases map[string]bool) (found []string) {
	var look func(t types.Type)
	members := func(t types.Type) {
		switch t := t.(type) {
		case *types.Struct:
			for f := range t.Fields() {
				if f.Exported() {
					look(f.Type())
				}
			}
		case *types.Interface:
			for m := range t.Methods() {
				look(m.Type())
			}
		default:
			look(t)
		}
	}
	look = func(t types.Type) {
		switch t := t.(type) {
		case *types.Named:
			if p := t.Obj().Pkg(); p != nil && under(p.Path(), module) && isInternal(p.Path()) && !aliases[t.String()] {
				found = append(found, t.String())
			}
		case *types.Signature:
			for _, of := range []*types.Tuple{t.Params(), t.Results()} {
				for v := range of.Variables() {
					look(v.Type())
				}
			}
		case *types.Map:
			look(t.Key())
			look(t.Elem())
		case interface{ Elem() types.Type }: // pointer, slice, array, channel
			look(t.Elem())
		case *types.Struct, *types.Interface:
			members(t)
		}
	}
	declared, isType := o.Type().(*types.Named)
	if _, is := o.(*types.TypeName); !is || !isType {
		look(o.Type())
		return found
	}
	members(declared.Underlying())
	for m := range declared.Methods() {
		if m.Exported() {
			look(m.Type())
		}
	}
	return found
}
