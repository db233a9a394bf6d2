package webconsole

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
)

func TestSettings_PrintNoSecret(t *testing.T) {
	v := Settings{WebConfigFile: "hunter2"}
	if s := fmt.Sprintf("%v %+v %#v", v, v, v); strings.Contains(s, "hunter2") {
		t.Error(s)
	}
	if got, want := fmt.Sprint(Settings{Listen: "127.0.0.1:1"}), fmt.Sprint(config.Console{Listen: "127.0.0.1:1"}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
