package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// daguConfig keeps Dagu to this machine: loopback only, no look for updates, no example files.
const daguConfig = `host: 127.0.0.1
check_updates: false
skip_examples: true
auth:
  mode: none
`

// daguChain5 measures "dagu start -q" of a chain of five steps that run /bin/true, with the binary at path.
func daguChain5(path string) func(context.Context, string, effort) ([]result, error) {
	return func(ctx context.Context, dir string, e effort) ([]result, error) {
		if err := writeDaguHome(dir); err != nil {
			return nil, err
		}
		var times []float64
		for start := time.Now(); len(times) < e.chains && (len(times) == 0 || time.Since(start) < e.patience); {
			before := time.Now()
			if err := runDagu(ctx, path, dir); err != nil {
				return nil, err
			}
			times = append(times, milliseconds(time.Since(before)))
		}
		slices.Sort(times)
		return []result{timeOf("dagu_chain5_ms", times)}, nil
	}
}

// runDagu runs the chain once, with nothing of the caller's environment but PATH: all of Dagu's files stay in dir.
func runDagu(ctx context.Context, path, dir string) error {
	cmd := exec.CommandContext(ctx, path, "start", "-q", "chain5")
	cmd.Dir = dir
	cmd.Env = []string{"DAGU_HOME=" + dir, "HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second // a killed Dagu may leave a step that holds the pipe
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run Dagu: %w: %s", err, bytes.TrimSpace(output.Bytes()))
	}
	return nil
}

func writeDaguHome(dir string) error {
	if err := os.Mkdir(filepath.Join(dir, "dags"), 0o700); err != nil {
		return fmt.Errorf("create Dagu home: %w", err)
	}
	for name, content := range map[string]string{"config.yaml": daguConfig, "dags/chain5.yaml": daguChainYAML()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("write Dagu home: %w", err)
		}
	}
	return nil
}

func daguChainYAML() string {
	var b strings.Builder
	b.WriteString("type: graph\nsteps:\n")
	for i := range chainLength {
		fmt.Fprintf(&b, "  - name: s%d\n    command: /bin/true\n", i+1)
		if i > 0 {
			fmt.Fprintf(&b, "    depends: s%d\n", i)
		}
	}
	return b.String()
}
