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
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

const module = "github.com/orderclose/orderclose"

// dependencies are what a package imports, and what a program with it links. Paths inside the module have no module
// prefix, the root package is ".", and those of the standard library begin with std/.
type dependencies struct{ imports, links []string }

// packages returns the packages of this module, without their tests.
func packages(t *testing.T) map[string]dependencies {
	t.Helper()
	out := must.Get(listPackages())(t)
	all := map[string]dependencies{}
	short := func(paths string) []string {
		fields := strings.Fields(paths)
		for i, f := range fields {
			if first, _, _ := strings.Cut(f, "/"); f == module {
				fields[i] = "."
			} else if own, is := strings.CutPrefix(f, module+"/"); is {
				fields[i] = own
			} else if !strings.Contains(first, ".") {
				fields[i] = "std/" + f
			}
		}
		return fields
	}
	for line := range strings.Lines(out) {
		parts := strings.Split(strings.TrimSpace(line), ";")
		all[short(parts[0])[0]] = dependencies{short(parts[1]), short(parts[2])}
	}
	return all
}

var listPackages = sync.OnceValues(func() (string, error) {
	return goList("-f", `{{.ImportPath}};{{join .Imports " "}};{{join .Deps " "}}`, "./...")
})

func goList(args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

func under(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }

// heavyLibraries are those that a shop need not compile for a few calls of ours.
var heavyLibraries = []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/contrib", "google.golang.org/grpc", "gorm.io",
	"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/spf13/cobra", "github.com/prometheus/client_golang"}

// TestStructure_PackagesLinkNothingTheyDoNotNeed: a name stands for all packages below it.
func TestStructure_PackagesLinkNothingTheyDoNotNeed(t *testing.T) {
	forOtherServices := append([]string{"github.com/segmentio/kafka-go", "internal/partition", "compensator"}, heavyLibraries...)
	for pkg, forbidden := range map[string][]string{
		// Production links no fake.
		"cmd/orderclose": {
			"github.com/twmb/franz-go/pkg/kfake", "github.com/alicebob/miniredis", "modernc.org/sqlite", "github.com/glebarez/sqlite",
			"internal/store/sqlite", "internal/testkit", "pipeline/pipelinetest",
		},
		// The producer, and packages for other services, are light to import.
		"producer":         append([]string{"internal/partition", "internal/environ", "internal/kafka/reads"}, heavyLibraries...),
		"closer/httpclose": forOtherServices,
		"closer/payment":   forOtherServices,
		// A program that embeds a relay need not link what answers operators, shows pages and parses commands.
		"pipeline": {
			"internal/ops", "internal/console", "internal/cli", "std/html/template", "golang.org/x/net/trace", "github.com/spf13/cobra",
			"go.opentelemetry.io/otel/sdk", "google.golang.org/grpc",
		},
	} {
		listed, exists := packages(t)[pkg]
		expect.That(t, exists, "package %s does not exist", pkg)
		for _, linked := range listed.links {
			if slices.ContainsFunc(forbidden, func(root string) bool { return under(linked, root) }) || under(pkg, "closer") && linked == "closer" {
				t.Errorf("%s links %s, which its list in this test forbids", pkg, linked)
			}
		}
	}
}

// TestStructure_FloorsAreFew: a way is a list of packages. Each package imports the next one, and links none before it. A record of the relay
// passes the 7 packages of the first two ways. An order in a close passes the 5 packages of the others.
func TestStructure_FloorsAreFew(t *testing.T) {
	all := packages(t)
	for _, way := range [][]string{
		{"pipeline", "delayrelay", "internal/partition", "internal/send", "internal/wire"},
		{"pipeline", "internal/kafka", "internal/kafka/recordbatch", "internal/wire"},
		{"closer", "internal/bisect"},
		{"internal/store", "internal/store/closetx", "internal/store/internal/db"},
		{"internal/store/closetx", "internal/bisect"},
	} {
		for i, pkg := range way[1:] {
			above := way[:i+1]
			expect.That(t, slices.Contains(all[above[i]].imports, pkg), "%s does not import %s", above[i], pkg)
			for _, floor := range above {
				expect.That(t, !slices.Contains(all[pkg].links, floor), "%s links %s, which is above it", pkg, floor)
			}
		}
	}
}

// TestStructure_FoldersAreSmall: a folder has at most 18 files without tests. Only internal/cli has more: a file for each command.
func TestStructure_FoldersAreSmall(t *testing.T) {
	const most = 18
	for pkg := range packages(t) {
		if under(pkg, "internal/testkit") || pkg == "internal/cli" {
			continue
		}
		files := must.Get(filepath.Glob(filepath.Join(pkg, "*.go")))(t)
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
		expect.That(t, len(files) <= most, "%s has %d files, at most %d: which of them are a package?", pkg, len(files), most)
	}
}

func TestStructure_TheCheckerSharesNoCodeWithTheParts(t *testing.T) {
	all := packages(t)
	for _, linked := range all["internal/testkit/checker"].links {
		_, own := all[linked]
		expect.That(t, !own, "the checker links %s", linked)
	}
}

// TestStructure_PackagesImportNothingTheyMustNotKnow: each broken rule is reported with its reason.
func TestStructure_PackagesImportNothingTheyMustNotKnow(t *testing.T) {
	parts := []string{"producer", "delayrelay", "closer", "compensator", "outbox", "webhook"}
	all := packages(t)
	for _, pkg := range append(parts, "internal/kafka", ".", "internal/console/access") {
		_, exists := all[pkg]
		expect.That(t, exists, "package %s does not exist", pkg)
	}
	for pkg, of := range all {
		for _, imported := range of.imports {
			_, own := all[imported]
			for why, broken := range map[string]bool{
				"a part knows no other part: pipeline connects them":        slices.Contains(parts, pkg) && slices.Contains(parts, imported),
				"the client of Kafka does not know the loop of a stage":     pkg == "internal/kafka" && imported == "internal/partition",
				"package admin is for programs of users alone":              imported == "admin" && !under(pkg, "examples"),
				"the root package imports the standard library only":        pkg == "." && !under(imported, "std"),
				"an example imports what programs of users can import":      under(pkg, "examples") && under(imported, "internal"),
				"who may open the console does not depend on what it shows": pkg == "internal/console/access" && own && imported != "internal/environ",
			} {
				expect.That(t, !broken, "%s imports %s: %s", pkg, imported, why)
			}
		}
	}
}

func TestStructure_EachLibraryHasItsHome(t *testing.T) {
	homes := map[string][]string{
		"github.com/segmentio/kafka-go":      {"internal/kafka"},
		"gorm.io":                            {"internal/store", "internal/testkit/storetest"},
		"github.com/go-redsync/redsync/v4":   {"internal/lock"},
		"internal/cli":                       {"cmd", "internal/cli"},
		"go.opentelemetry.io/otel/sdk":       {"internal/tracing/otlp"},
		"go.opentelemetry.io/otel/exporters": {"internal/tracing/otlp"},
		"go.opentelemetry.io/contrib":        {"internal/tracing/otlp"},
		"github.com/XSAM/otelsql":            {"internal/tracing/otlp"},
		"github.com/twmb/franz-go/pkg/kmsg":  {"internal/kafka", "internal/testkit", "pipeline/pipelinetest", "cmd/orderclose-dev"},
		"github.com/twmb/franz-go/pkg/kadm":  {"internal/testkit"},
		// What the example shop needs, the product does not.
		"github.com/hashicorp/golang-lru/v2":  {"examples/checkout/ordercache"},
		"github.com/bits-and-blooms/bloom/v3": {"examples/checkout/idfilter"},
		// The checker judges the parts and takes nothing of theirs; only what runs the checker may know the fakes.
		"github.com/twmb/franz-go/pkg/kfake": {"pipeline/pipelinetest"},
		"github.com/alicebob/miniredis/v2":   {"pipeline/pipelinetest"},
	}
	for pkg, of := range packages(t) {
		for _, i := range of.imports {
			for library, allowed := range homes {
				expect.That(t, !under(i, library) || slices.ContainsFunc(allowed, func(home string) bool { return under(pkg, home) }),
					"%s imports %s, which only %v may", pkg, i, allowed)
			}
		}
	}
}

// asksForDatabase matches code that does something else on one database than on another, by its name.
var asksForDatabase = regexp.MustCompile(`(\.Name|Dialect\(\)) [!=]= (db\.|store\.)?(MySQL|Postgres|SQLite)\b|(switch|case) \S*Dialect(\.Name|\(\)) `)

// TestStructure_NobodyAsksForTheNameOfTheDatabase: db.Dialect names what differs between databases.
func TestStructure_NobodyAsksForTheNameOfTheDatabase(t *testing.T) {
	for _, asks := range []string{"if s.Dialect.Name == db.MySQL {", "return d.Name != SQLite", "switch s.Dialect.Name {"} {
		expect.That(t, asksForDatabase.MatchString(asks), "%s is not found", asks)
	}
	eachFile(t, func(path, folder string) {
		if !under(folder, "internal/testkit") && !under(folder, "examples") && !under(folder, "cmd/orderclose-dev") {
			for line := range strings.Lines(string(must.Get(os.ReadFile(path))(t))) {
				expect.That(t, !asksForDatabase.MatchString(line), "%s asks for the name of the database: make it an operation of db.Dialect: %s", path, line)
			}
		}
	})
}

// listedFiles matches a line of a package comment that says what is in one or more files.
var listedFiles = regexp.MustCompile(`^\t(\w+\.go(?:, \w+\.go)*) +\S`)

// eachWith calls each with every file of an extension.
func eachWith(t *testing.T, ext string, each func(path string)) {
	t.Helper()
	must.Do(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(notRead, entry.Name()):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(path) == ext:
			each(path)
		}
		return nil
	}))
}

// eachFile calls each with every Go file but tests, and with its folder.
func eachFile(t *testing.T, each func(path, folder string)) {
	t.Helper()
	eachWith(t, ".go", func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			each(path, filepath.Dir(path))
		}
	})
}

// A package comment that lists files lists each Go file of its folder once, except tests and a doc.go. A list of test files is not compared.
func TestStructure_PackageCommentsListTheFilesOfTheirFolder(t *testing.T) {
	files, comments := map[string][]string{}, map[string]string{} // by folder
	eachFile(t, func(path, folder string) {
		if name := filepath.Base(path); name != "doc.go" {
			files[folder] = append(files[folder], name)
		}
		file := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments))(t)
		comments[folder] += file.Doc.Text()
	})
	for folder, comment := range comments {
		var listed []string
		for line := range strings.Lines(comment) {
			if m := listedFiles.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "_test.go") {
				listed = append(listed, strings.Split(m[1], ", ")...)
			}
		}
		if slices.Sort(listed); listed != nil && !slices.Equal(listed, files[folder]) {
			t.Errorf("the package comment of %s lists\n%v\nand its folder has\n%v: write one line for each file", folder, listed, files[folder])
		}
	}
}

// What is exported can be used outside of this module: it mentions no type of an internal package, unless a public package has an alias for that type.
func TestStructure_ProgramsCanNameEachTypeOfThePublicPackages(t *testing.T) {
	ring.NotShort(t)
	var public []*types.Package
	compiled := map[string]string{} // the files with the types of packages
	out := must.Get(goList("-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./pipeline/...", "./closer/...", "./producer", "./admin"))(t)
	for line := range strings.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[path] = file
	}
	importing := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	aliases := map[string]bool{}
	for path := range compiled {
		if !under(path, module) || isInternal(path) {
			continue
		}
		p := must.Get(importing.Import(path))(t)
		public = append(public, p)
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() && o.Type() != types.Unalias(o.Type()) {
				aliases[types.Unalias(o.Type()).String()] = true
			}
		}
	}
	expect.That(t, len(public) >= 10, "%d packages are public", len(public))
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

// maxColumns is how many characters a line of code or of a test may have. A tab is one character.
const maxColumns = 160

func TestStructure_LinesAreNotTooLong(t *testing.T) {
	eachWith(t, ".go", func(path string) {
		for n, line := range strings.Split(string(must.Get(os.ReadFile(path))(t)), "\n") {
			columns := utf8.RuneCountInString(line)
			expect.That(t, columns <= maxColumns, "%s:%d has %d characters, at most %d: break it where a reader would", path, n+1, columns, maxColumns)
		}
	})
}
