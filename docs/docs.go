// Package docs has the documents that the program shows. A file can be embedded only by a package of its
// folder.
package docs

import _ "embed"

// Runbook is the text of runbook.md, in Markdown.
//
//go:embed runbook.md
var Runbook string
