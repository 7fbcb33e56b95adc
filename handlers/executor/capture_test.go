package executor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
)

func TestCase_P5(t *testing.T) {
	for _, size := range []int{64 << 10, 65 << 10, 1 << 20, 20 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			r := succeed(t, newCall(t, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo; echo after", size)))
			log := read(t, r.Stdout.Path)
			want := int64(size + len("\nafter\n"))
			if r.Stdout.Bytes != want || !strings.HasSuffix(log, "x\nafter\n") || r.Stdout.Kept+r.Stdout.Dropped != want {
				t.Errorf("%+v, ends with %q", r.Stdout, r.Stdout.Tail(20))
			}
			if dropped := want - 2*logPart; dropped > 0 {
				mark := fmt.Sprintf("\n[apollo: %d bytes dropped here]\n", dropped)
				if r.Stdout.Dropped != dropped || log[logPart:logPart+len(mark)] != mark || len(log) != 2*logPart+len(mark) {
					t.Errorf("%+v, %d bytes, mark %q", r.Stdout, len(log), log[logPart:logPart+len(mark)])
				}
			} else if int64(len(log)) != want {
				t.Errorf("%d bytes", len(log))
			}
		})
	}
}

func TestCase_P7(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff\xfe"
	for _, text := range []string{"hi\x80there", "caf\xe9 na\xefve", png, "no newline at the end"} {
		c := newCall(t, "#!/bin/sh\ncat \"$APOLLO_IN_DATA\"; cat \"$APOLLO_IN_DATA\" >&2")
		file := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Inputs = map[string]Input{"data": {Path: file}}
		r := succeed(t, c)
		if read(t, r.Stdout.Path) != text || read(t, r.Stderr.Path) != text {
			t.Errorf("%q became %q, %q", text, r.Stdout.Tail(99), r.Stderr.Tail(99))
		}
	}
}

// TestLogFlood lets stages write as fast as they can and watches the engine's heap meanwhile.
func TestLogFlood(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		bytes  int64
	}{
		"1 GB in one line":    {"head -c 1000000000 /dev/zero; exit 0", 1_000_000_000},
		"three million lines": {"yes 0123456789 | head -n 3000000 || true", 33_000_000},
		"both streams":        {"head -c 50000000 /dev/zero >&2 & head -c 50000000 /dev/zero; wait", 50_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			var before runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			peak := watchHeap()
			r := succeed(t, newCall(t, test.script))
			grown := int64(peak()) - int64(before.HeapAlloc)
			if r.Stdout.Bytes != test.bytes || r.Stdout.Kept != 2*logPart || r.Stdout.Kept+r.Stdout.Dropped != test.bytes {
				t.Errorf("%+v", r.Stdout)
			}
			if grown > 4<<20 {
				t.Errorf("the heap grew by %d bytes", grown)
			}
			if info, err := os.Stat(r.Stdout.Path); err != nil || info.Size() > 2*logPart+100 {
				t.Errorf("file %v, %v", info, err)
			}
			if _, err := os.Stat(r.Stdout.Path + ".tail"); !os.IsNotExist(err) {
				t.Errorf("the ring is still there: %v", err)
			}
		})
	}
}

// watchHeap samples the heap until the returned function is called, which gives the peak.
func watchHeap() (peak func() uint64) {
	var most atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	return func() uint64 { close(stop); <-done; return most.Load() }
}

func TestCaptureKeepsHeadAndTail(t *testing.T) {
	var all []byte
	for i := range 500 {
		all = fmt.Appendf(all, "%d,", i)
	}
	for _, part := range []int64{1, 7, 100, 900, 1000, 5000} {
		for _, chunk := range []int{1, 3, 64, 4096} {
			for _, size := range []int{0, 1, 99, 200, 201, 999, len(all)} {
				c := capture{path: filepath.Join(t.TempDir(), "new", "stdout"), part: part}
				for rest := all[:size]; len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
					c.write(rest[:min(chunk, len(rest))])
				}
				log := c.close()
				want := string(all[:size])
				if dropped := int64(size) - 2*part; dropped > 0 {
					want = fmt.Sprintf("%s\n[apollo: %d bytes dropped here]\n%s", all[:part], dropped, all[int64(size)-part:size])
				}
				if size == 0 {
					if log != (Log{}) {
						t.Errorf("%+v", log)
					}
					continue
				}
				if got := read(t, log.Path); got != want || log.Kept+log.Dropped != int64(size) || log.Kept != min(int64(size), 2*part) {
					t.Fatalf("part %d, chunk %d, size %d: %+v\n got %q\nwant %q", part, chunk, size, log, got, want)
				}
			}
		}
	}
}

func TestLogThatCannotBeWritten(t *testing.T) {
	c := newCall(t, "head -c 20000000 /dev/zero; exit 0")
	if err := os.WriteFile(c.LogDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := succeed(t, c); r.Stdout.Dropped != 20_000_000 || r.Stdout.Path != "" {
		t.Errorf("%+v", r.Stdout)
	}
}

func TestMaskAcrossEveryCut(t *testing.T) {
	for name, test := range map[string]struct {
		secrets    []string
		text, want string
	}{
		"one":         {[]string{"hunter2"}, "pw=hunter2; hunter; hunter22", "pw=***; hunter; ***2"},
		"short":       {[]string{"a", "abc"}, "abc a", "abc a"},
		"lines":       {[]string{"{\n \"key\": \"k-123456\",\nxyz\n}"}, "xyz: \"key\": \"k-123456\", {\n \"key\": \"k-123456\",\nxyz\n}!", "xyz: *** ***!"},
		"lines alone": {[]string{"line-one\nline-two\n"}, "line-two line-one\nline-", "*** ***\nline-"},
		"settings":    {[]string{"A=alpha-1\nexport B='b b-2'\nC: \"gamma\"\nD=true\nE=x"}, "alpha-1 b b-2 gamma true x alpha", "*** *** *** true x alpha"},
		"JSON":        {[]string{`{"a": ["al\npha-1"], "b": "q\"q<q", "n": 12345678, "port": 8080, "on": false}`}, "pha-1 al\npha-1 q\"q<q \"q\\\"q<q\" q\\\"q\\u003cq 12345678 8080 false", `*** *** *** "***" *** *** 8080 false`},
		"base64":      {[]string{"dGVzdC1zZWNyZXQ="}, "dGVzdC1zZWNyZXQ= =", "*** ="},
		"overlap":     {[]string{"abcd", "cdef"}, "xabcdefx", "x***x"},
		"touching":    {[]string{"abcd"}, "abcdabcd", "***"},
		"longest":     {[]string{"abcd", "abcdefgh"}, "abcdefgh abcdefg", "*** ***efg"},
		"periodic":    {[]string{"aaaa"}, "aaaaaaa aaa", "*** aaa"},
		"nested":      {[]string{"token-1234", "n-12"}, "token-1234 n-12 token-12", "*** *** toke***"},
		"at the end":  {[]string{"secret"}, "a secret", "a ***"},
		"half":        {[]string{"secret"}, "a secre", "a secre"},
		"binary":      {[]string{"\xff\xfe\x00\x01"}, "\xff\xff\xfe\x00\x01\x00", "\xff***\x00"},
	} {
		values := make(map[string]string)
		for i, s := range test.secrets {
			values[fmt.Sprint(i)] = s
		}
		for first := range len(test.text) + 1 {
			for second := first; second <= len(test.text); second++ {
				c := capture{path: filepath.Join(t.TempDir(), "log"), part: 1 << 20, mask: newMasker(values)}
				c.write([]byte(test.text[:first]))
				c.write([]byte(test.text[first:second]))
				c.write([]byte(test.text[second:]))
				if got := read(t, c.close().Path); got != test.want {
					t.Fatalf("%s cut at %d and %d: got %q, want %q", name, first, second, got, test.want)
				}
			}
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	c := newCall(t, "#!/bin/sh\nenv; env >&2; printf %s \"$TOKEN\" | fold -w 3 | tr -d '\\n'; echo ' ' $KEY")
	c.Secrets = map[string]string{"TOKEN": "s3cr3t-token", "KEY": "{\n  \"private_key\": \"AAAA-BBBB\"\n}", "ONE": "x"}
	r := succeed(t, c)
	for _, log := range []Log{r.Stdout, r.Stderr} {
		text := read(t, log.Path)
		if strings.Contains(text, "s3cr3t") || strings.Contains(text, "AAAA") || log == r.Stdout && !strings.Contains(text, "***  { *** }") || !strings.Contains(text, "TOKEN=***\n") || !strings.Contains(text, "ONE=x\n") {
			t.Errorf("got %s", text)
		}
	}
}

func TestRevealed(t *testing.T) {
	secrets := map[string]string{"VARS": "USER=al\nPASSWORD=hunter22-long\nMODE=prod-eu\nPIN=12345678"}
	for value, want := range map[string]bool{
		`"hunter22-long"`: true, `{"a": [{"b": "x hunter22-\u006cong y"}]}`: true, `{"hunter22-long": 1}`: true, `12345678`: true,
		`"prod-eu"`: false, `"hunter22"`: false, `null`: false, `[1, true]`: false,
	} {
		failure := Revealed(secrets, map[string]json.RawMessage{"found": json.RawMessage(value)})
		if (failure != nil) != want {
			t.Errorf("%s: %+v", value, failure)
		}
		if failure != nil && (failure.Class != events.BadOutput || failure.Pointer != "/outputs/found" || strings.Contains(fmt.Sprint(failure), "hunter22")) {
			t.Errorf("%s: %+v", value, failure)
		}
	}
	if failure := Revealed(nil, map[string]json.RawMessage{"found": json.RawMessage(`"hunter22-long"`)}); failure != nil {
		t.Error(failure)
	}
}

func BenchmarkMask(b *testing.B) {
	line := bytes.Repeat([]byte("2026-11-30 06:00:00 INFO a line of a log, as they come\n"), 1200)
	m := newMasker(map[string]string{"A": "s3cr3t-token", "B": "another-one", "C": "{\n\"key\": \"123456\"\n}"})
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		m.mask(line)
	}
}
