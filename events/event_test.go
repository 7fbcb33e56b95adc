package events

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestChainFollowsWhatItSealed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.SliceOfN(genEvent(), 2, 6).Draw(t, "log")
		encoded := make([][]byte, len(log))
		var write, read Chain
		var scratch []byte
		for i := range log {
			encoded[i] = log[i].Data.AppendEncoded(nil)
			scratch = write.Seal(&log[i], encoded[i], scratch)
			if canonical := log[i].AppendCanonical(nil); write.Head != sha256.Sum256(canonical) {
				t.Fatal("the head is not the hash of the canonical bytes")
			}
		}
		for i := range log {
			var err error
			if scratch, err = read.Follow(&log[i], encoded[i], scratch); err != nil {
				t.Fatal(err)
			}
		}
		if read != write {
			t.Fatal("the chain ends elsewhere")
		}
		// Whatever is changed in an event shows at the one after it.
		at := rapid.IntRange(0, len(log)-2).Draw(t, "changed")
		change(t, &log[at])
		encoded[at] = log[at].Data.AppendEncoded(nil)
		if broken := follow(log, encoded); broken != at && broken != at+1 {
			t.Fatalf("event %d was changed; the chain breaks at %d", at, broken)
		}
	})
}

func change(t *rapid.T, e *Event) {
	switch rapid.IntRange(0, 6).Draw(t, "what") {
	case 0:
		e.ID[3] ^= 1
	case 1:
		e.Stream[3] ^= 1
	case 2:
		e.Sequence++
	case 3:
		e.Type ^= 1
	case 4:
		e.Time++
	case 5:
		e.Cause[3] ^= 1
	case 6:
		e.Data.Reason += "."
	}
}

// follow gives the index at which the chain breaks, or the length of the log.
func follow(log []Event, encoded [][]byte) int {
	var c Chain
	for i := range log {
		if _, err := c.Follow(&log[i], encoded[i], nil); err != nil {
			return i
		}
	}
	return len(log)
}

func TestChainNamesTheBreak(t *testing.T) {
	t.Parallel()
	e, _ := sampleEvent()
	var c Chain
	if _, err := c.Follow(&e, nil, nil); err == nil || !strings.Contains(err.Error(), "sequence 4 follows 0") {
		t.Errorf("a gap: %v", err)
	}
	e.Sequence = 1
	if _, err := c.Follow(&e, nil, nil); err == nil || !strings.Contains(err.Error(), "does not continue") {
		t.Errorf("another hash: %v", err)
	}
	if c != (Chain{}) {
		t.Error("a refused event moved the head")
	}
}

// TestFormatDocument checks the example of docs/event-format.md against the code: the bytes that it shows are those of
// the event that it shows.
func TestFormatDocument(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/event-format.md")
	if err != nil {
		t.Fatal(err)
	}
	fences := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```([a-z0-9]+) +([a-z-]+)\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
		fences[m[2]] = m[3]
	}
	e, _, err := ParseCloudEvent([]byte(fences["cloudevent"]))
	if err != nil {
		t.Fatal(err)
	}
	var canonical []byte
	for line := range strings.SplitSeq(fences["canonical"], "\n") {
		bytes, _, _ := strings.Cut(line, "#")
		part, err := hex.DecodeString(strings.ReplaceAll(bytes, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		canonical = append(canonical, part...)
	}
	if got := e.AppendCanonical(nil); string(got) != string(canonical) {
		t.Errorf("canonical bytes\n%x\nthe document has\n%x", got, canonical)
	}
	if got := DigestOf(canonical).String(); strings.TrimSpace(fences["hash"]) != got {
		t.Errorf("hash %s, the document has %s", got, fences["hash"])
	}
}
