package events

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func TestIDText(t *testing.T) {
	t.Parallel()
	const good = "01900000-0000-7000-8000-00000000abcd"
	for text, ok := range map[string]bool{good: true, strings.ToUpper(good): false, good[1:]: false, good + "0": false,
		strings.ReplaceAll(good, "-", "0"): false, "0190000g" + good[8:]: false, "": false, "{" + good + "}": false,
		"00000000-0000-0000-0000-000000000000": false} {
		if id, err := ParseID(text); (err == nil) != ok || ok && id.String() != text {
			t.Errorf("%q: %v, %v", text, id, err)
		}
	}
	if (ID{}).String() != "" || !(ID{}).IsZero() {
		t.Error("the zero id has no text")
	}
	rapid.Check(t, func(t *rapid.T) {
		id := genID().Draw(t, "id")
		if back, err := ParseID(id.String()); err != nil || back != id || uuid.UUID(id).String() != id.String() {
			t.Fatalf("%v, %v", back, err)
		}
	})
}

func TestDigestText(t *testing.T) {
	t.Parallel()
	const good = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := DigestOf([]byte("abc")).String(); got != good {
		t.Errorf("digest of abc: %s", got)
	}
	for text, ok := range map[string]bool{good: true, strings.ToUpper(good): false, good[7:]: false, good[:70]: false,
		"sha256:" + strings.ToUpper(good[7:]): false, "sha512:" + good[7:]: false, "": false,
		"sha256:" + strings.Repeat("0", 64): false, good[:70] + "g": false} {
		if d, err := ParseDigest(text); (err == nil) != ok || ok && d.String() != text {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
}

func TestTextMarshalling(t *testing.T) {
	t.Parallel()
	type all struct {
		ID     ID
		None   ID
		Digest Digest
		Nil    Digest
		Type   Type
		State  State
	}
	rapid.Check(t, func(t *rapid.T) {
		v := all{ID: genID().Draw(t, "id"), Digest: genDigest().Draw(t, "digest"),
			Type: rapid.SampledFrom(Types()).Draw(t, "type"), State: State(rapid.IntRange(0, int(Skipped)).Draw(t, "state"))}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var back all
		if err := json.Unmarshal(b, &back); err != nil || back != v {
			t.Fatalf("%s: %+v, %v", b, back, err)
		}
	})
	for _, broken := range []string{`{"ID":"x"}`, `{"Digest":"x"}`, `{"Type":"x"}`, `{"Type":""}`, `{"State":"x"}`} {
		if json.Unmarshal([]byte(broken), new(all)) == nil {
			t.Errorf("%s: taken", broken)
		}
	}
}

func TestTypeNames(t *testing.T) {
	t.Parallel()
	if len(Types()) != len(typeNames) || len(Types()) != 41 {
		t.Errorf("%d types, %d names", len(Types()), len(typeNames))
	}
	for _, typ := range Types() {
		if back, err := ParseType(typ.String()); err != nil || back != typ || !typ.Known() {
			t.Errorf("%d %s: %d, %v", typ, typ, back, err)
		}
		if !strings.HasPrefix(typ.Short(), typ.Entity()+".") || typ.String() != "apollo."+typ.Short()+".v1" {
			t.Errorf("%d: %s, %s, %s", typ, typ.Entity(), typ.Short(), typ)
		}
	}
	if Type(255).Known() || Type(255).Short() != "unknown.255" {
		t.Errorf("an unknown type is called %s", Type(255).Short())
	}
}

func TestClassIsClosed(t *testing.T) {
	t.Parallel()
	for _, c := range Classes() {
		if back, err := ParseClass(string(c)); err != nil || back != c {
			t.Errorf("%s: %v", c, err)
		}
	}
	if _, err := ParseClass("bad_luck"); err == nil || len(Classes()) != 9 {
		t.Error("the list of classes is not closed")
	}
}

func TestFailureTravelsInData(t *testing.T) {
	t.Parallel()
	f := Failure{Class: ExecFailed, Reason: "r", Pointer: "p", Expected: "e", Actual: "a", Exit: 3, Signal: "s", Evidence: Digest{1}}
	var d Data
	if d.Failure() != nil {
		t.Error("no class, yet a failure")
	}
	d.SetFailure(&f)
	if got := d.Failure(); *got != f || got.Error() != "exec_failed: r" {
		t.Errorf("%+v", got)
	}
}
