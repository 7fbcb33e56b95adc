package configs

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func repeated(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestHostileFilesStayCheap reads files of the largest allowed size that are made to cost much. It counts the bytes that
// reading allocates, all in all; the unguarded parser takes 29 GB for one of them. It is not parallel, since it counts
// for the whole process.
//
//nolint:paralleltest // see above
func TestHostileFilesStayCheap(t *testing.T) {
	const size = MaxFileSize - 64
	for name, src := range map[string]string{
		"brackets":        strings.Repeat("[", size),
		"braces":          strings.Repeat("{a: ", size/4),
		"dashes":          strings.Repeat("- ", size/2),
		"question marks":  strings.Repeat("? ", size/2),
		"colons":          strings.Repeat("a: ", size/3),
		"empty keys":      strings.Repeat("a:\n", size/3),
		"keys":            repeated("a%d: b\n", size/11),
		"quotes":          strings.Repeat(`"`, size),
		"list":            "a: [" + strings.Repeat("a,", size/2) + "]",
		"items":           repeated("- %d\n", size/9),
		"flow map":        "a: {" + repeated("k%d: a,", size/12) + "}",
		"flow pairs":      "a: [" + repeated("k%d: a,", size/12) + "]",
		"comments":        "a: 1\n" + strings.Repeat("#\n", size/2),
		"stages":          "name: x\nstages:\n" + repeated("  s%d:\n    run: x\n", 9_500),
		"unknown keys":    "name: x\nstages:\n  a:\n" + repeated("    key%d: x\n", 1_000),
		"unknown stages":  "name: x\nstages: {a: {run: x, needs: [" + repeated("s%d,", 30_000) + "]}}",
		"reads":           "name: x\nstages:\n  a: {run: x}\n  b:\n    run: x\n    env:\n" + repeated("      E%d: \"${{ stages.a.outputs.b }}\"\n", 900),
		"long word":       "name: " + strings.Repeat("x", size),
		"long expression": "name: x\nstages: {a: {run: x, when: '" + strings.Repeat("(", size) + "'}}",
		"templates":       "name: x\nstages:\n  a:\n    run: |\n" + strings.Repeat("      {{ params.x }}\n", size/24),
		"secrets":         strings.Repeat("# AKIA"+strings.Repeat("Z", 16)+"\n", size/24),
		"aliases":         "a: [" + strings.Repeat("*a,", size/3) + "]",
		"duplicates":      "a: {" + strings.Repeat("k: a,", size/5) + "}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, problems := Parse("p.yaml", []byte(src), "", Options{})
		runtime.ReadMemStats(&after)
		if spent := (after.TotalAlloc - before.TotalAlloc) >> 20; spent > 400 {
			t.Errorf("%s: %d MiB", name, spent)
		} else if testing.Verbose() {
			t.Logf("%s: %d MiB, %d problems", name, spent, len(problems))
		}
		if len(problems) > maxProblems {
			t.Errorf("%s: %d problems", name, len(problems))
		}
	}
}
