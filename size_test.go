package orderclose_test

import (
	"encoding/csv"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestSize_StaysBelowItsBudget: who makes the tree smaller lowers the row of docs/data/size.csv in the same commit. Who needs more raises it in a commit
// that says why.
func TestSize_StaysBelowItsBudget(t *testing.T) {
	file := must.Get(os.Open("docs/data/size.csv"))(t)
	defer file.Close()
	rows := must.Get(csv.NewReader(file).ReadAll())(t)
	for _, row := range rows[1:] {
		out := must.Get(exec.CommandContext(t.Context(), "bash", "-c", row[2]).Output())(t)
		size, most := must.Get(strconv.Atoi(strings.TrimSpace(string(out))))(t), must.Get(strconv.Atoi(row[1]))(t)
		t.Logf("%s: %d of %d", row[0], size, most)
		if size > most {
			t.Errorf("%s: %d, and docs/data/size.csv allows %d: take something away, or say in the commit why it needs more", row[0], size, most)
		}
	}
}
