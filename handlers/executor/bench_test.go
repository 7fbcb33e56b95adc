package executor

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

func bareExec(tb testing.TB) {
	if err := exec.Command("sh", "-c", "true").Run(); err != nil {
		tb.Fatal(err)
	}
}

func shellStage(tb testing.TB, shell *Shell, c *Call, root string, i int) {
	below := filepath.Join(strconv.Itoa(i/5), "stage-"+strconv.Itoa(i%5), "1") // runs of five stages
	c.Dir, c.LogDir = filepath.Join(root, "work", below), filepath.Join(root, "logs", below)
	if _, failure := shell.Execute(context.Background(), c); failure != nil {
		tb.Fatal(failure)
	}
}

func BenchmarkBareExec(b *testing.B) {
	for b.Loop() {
		bareExec(b)
	}
}

func BenchmarkShellStage(b *testing.B) {
	root := b.TempDir()
	shell := NewShell(Settings{Owner: owner, Spare: filepath.Join(root, "spare")})
	c := newCall(b, "true")
	for i := 0; b.Loop(); i++ {
		shellStage(b, shell, c, root, i)
	}
}

// BenchmarkShellRatio takes a stage and a bare process in turn, so that the noise of the machine meets both, and
// reports the ratio of their medians.
func BenchmarkShellRatio(b *testing.B) {
	root := b.TempDir()
	shell := NewShell(Settings{Owner: owner, Spare: filepath.Join(root, "spare")})
	c := newCall(b, "true")
	var stage, bare []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		shellStage(b, shell, c, root, i)
		middle := time.Now()
		bareExec(b)
		stage, bare = append(stage, middle.Sub(begin)), append(bare, time.Since(middle))
	}
	slices.Sort(stage)
	slices.Sort(bare)
	middle := len(stage) / 2
	b.ReportMetric(float64(stage[middle])/float64(bare[middle]), "stage/bare")
	b.ReportMetric(float64(stage[middle].Microseconds()), "us/stage")
	b.ReportMetric(float64(bare[middle].Microseconds()), "us/bare")
}

func BenchmarkTask(b *testing.B) {
	tasks := NewTasks(map[string]Task{"noop": func(context.Context, *TaskCall) error { return nil }})
	c := newCall(b, "-")
	c.With = json.RawMessage(`{"name":"noop"}`)
	for b.Loop() {
		if _, failure := tasks.Execute(context.Background(), c); failure != nil {
			b.Fatal(failure)
		}
	}
}

// BenchmarkMoved is what the count of bytes adds to a stage.
func BenchmarkMoved(b *testing.B) {
	for b.Loop() {
		if read, _ := moved(os.Getpid()); read == 0 {
			b.Fatal("nothing was read")
		}
	}
}
