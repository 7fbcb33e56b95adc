package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/apollo-11/apollo/storage/artifacts"
)

// storing: what it takes to make a large output an artifact, hashed, durable and under its name, against only reading and
// hashing it: by sha256sum, and by the same code as the store's.
func storing(ctx context.Context, m *meter) (err error) {
	dir := m.dir()
	defer discard(dir)
	size := int64(pick(m, 64, 1024)) << 20
	store, err := artifacts.Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := writeFile(filepath.Join(dir, "other"), size, 0); err != nil {
		return err
	}
	var sums, hashes, puts times
	for i := range pick(m, 1, 3) {
		sum, void := sha256sum(ctx, filepath.Join(dir, "other"))
		if void == "" {
			sums = append(sums, sum)
		}
		hashed, err := clocked(func() error { return hashFile(ctx, filepath.Join(dir, "other")) })
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, "output"), size, byte(i+1)); err != nil { // fresh, as a stage leaves it
			return err
		}
		put, err := clocked(func() error {
			_, err := store.PutFile(ctx, root, "output")
			return err
		})
		if err != nil {
			return err
		}
		hashes, puts = append(hashes, hashed), append(puts, put)
	}
	f := Figure{Name: "store_1gib_vs_sha256sum", Value: ms(puts.p50()), Unit: "ms", LimitValue: ms(sums.p50()), Samples: len(puts), P50: ms(puts.p50()), P99: ms(puts.p99())}
	if len(sums) < len(puts) {
		f.Void = "sha256sum is not on this machine"
	}
	m.add(f, atMost(1.5))
	f.Name, f.LimitValue, f.Void = "store_1gib_vs_hash", ms(hashes.p50()), ""
	m.add(f, atMost(2.5))
	return nil
}

func clocked(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

// writeFile makes a file of bytes that no file system can leave out.
func writeFile(path string, size int64, seed byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i%251) ^ seed | 1
	}
	for n := int64(0); n < size && err == nil; n += int64(len(block)) {
		block[0]++
		_, err = f.Write(block)
	}
	return errors.Join(err, f.Close())
}

// sha256sum takes the time of the program; void says why there is none.
func sha256sum(ctx context.Context, path string) (took time.Duration, void string) {
	took, err := clocked(exec.CommandContext(ctx, "sha256sum", path).Run)
	if err != nil {
		return 0, fmt.Sprint("sha256sum: ", err)
	}
	return took, ""
}

func hashFile(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = artifacts.Hash(ctx, f)
	return errors.Join(err, f.Close())
}
