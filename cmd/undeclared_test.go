package cmd

import (
	"strings"
	"testing"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// An attempt that nobody could observe is not shown as one that used nothing.
func TestUnobservedIsSaid(t *testing.T) {
	t.Parallel()
	for want, found := range map[string][]events.Pair{
		"":                 nil,
		"not observed: 下载": {executor.Unobserved},
		"not observed: 下载|undeclared by 下载:|out/x": {{Name: "leave", Value: "out/x"}, executor.Unobserved},
	} {
		ended := event(events.StageCompleted, "下载", 3)
		ended.Data.Accesses = found
		v := runOf(t, []string{"下载"}, event(events.StageStarted, "下载", 0), ended)
		a, _ := textApp(lang.English, "never")
		text := strings.Join(a.undeclaredLines(v), "\n")
		if want == "" && text != "" {
			t.Errorf("nothing was used: %s", text)
		}
		for part := range strings.SplitSeq(want, "|") {
			if !strings.Contains(text, part) {
				t.Errorf("%v: %q does not say %q", found, text, part)
			}
		}
	}
}
