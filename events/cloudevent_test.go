package events

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCloudEventRoundTripIsTheIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := genEvent().Draw(t, "event")
		o := Origin{Pipeline: genText().Draw(t, "pipeline"), Trace: strings.ToValidUTF8(genText().Draw(t, "trace"), "?"),
			Correlation: rapid.OneOf(rapid.Just(ID{}), genID()).Draw(t, "correlation")}
		rendered, err := e.CloudEvent(o)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(rendered) || bytes.ContainsRune(rendered, '\n') {
			t.Fatalf("not one line of JSON: %q", rendered)
		}
		back, origin, err := ParseCloudEvent(rendered)
		if err != nil {
			t.Fatalf("%v\n%s", err, rendered)
		}
		if diff := cmp.Diff(o, origin); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Fatalf("%s\n%s", diff, rendered)
		}
		if !bytes.Equal(e.AppendCanonical(nil), back.AppendCanonical(nil)) {
			t.Fatal("the canonical bytes differ")
		}
	})
}

// sampleEvent is the stage event that the tests of spelling mend and break.
func sampleEvent() (Event, Origin) {
	run, _ := ParseID("01900000-0000-7000-8000-000000000001")
	id, _ := ParseID("01900000-0000-7000-8000-000000000002")
	delivery, _ := ParseID("01900000-0000-7000-8000-000000000003")
	e := Event{ID: id, Stream: run, Sequence: 4, Type: StageFailed, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano(),
		Cause: delivery, Prev: DigestOf([]byte("before")),
		Data: Data{Stage: "clean", Attempt: 2, Class: BadInput, Reason: "row 3: <price> is no number", Token: 3}}
	return e, Origin{Pipeline: "orders", Correlation: delivery, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
}

func TestCloudEventSpelling(t *testing.T) {
	t.Parallel()
	e, o := sampleEvent()
	got, err := e.CloudEvent(o)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"specversion":"1.0","id":"01900000-0000-7000-8000-000000000002","source":"/pipelines/orders",` +
		`"type":"apollo.stage.failed.v1","subject":"runs/01900000-0000-7000-8000-000000000001/stages/clean",` +
		`"time":"2026-01-02T03:04:05.000000006Z","dataschema":"urn:apollo:event:stage.failed:v1",` +
		`"datacontenttype":"application/json","runid":"01900000-0000-7000-8000-000000000001",` +
		`"sequence":"00000000000000000004","attempt":2,"causationid":"01900000-0000-7000-8000-000000000003",` +
		`"correlationid":"01900000-0000-7000-8000-000000000003",` +
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
		`"prevhash":"` + e.Prev.String() + `",` +
		`"data":{"stage":"clean","attempt":2,"reason":"row 3: <price> is no number","token":3,"class":"bad_input"}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestParseCloudEventIsStrict(t *testing.T) {
	t.Parallel()
	e, o := sampleEvent()
	e.Data.File = "\xff.csv" // so that there is an encoded member
	rendered, err := e.CloudEvent(o)
	if err != nil {
		t.Fatal(err)
	}
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, rendered, "", "  "); err != nil {
		t.Fatal(err)
	}
	if back, _, err := ParseCloudEvent(spaced.Bytes()); err != nil || !cmp.Equal(back, e) {
		t.Errorf("white space is free: %v", err)
	}
	for name, change := range map[string][2]string{
		"another type":             {`"apollo.stage.failed.v1"`, `"apollo.stage.completed.v1"`},
		"unknown type":             {`"apollo.stage.failed.v1"`, `"apollo.stage.burnt.v1"`},
		"another stage":            {`/stages/clean"`, `/stages/fetch"`},
		"stage in capitals":        {`"stage":"clean"`, `"STAGE":"clean"`},
		"stage twice":              {`"stage":"clean"`, `"stage":"clean","stage":"clean"`},
		"a zero member":            {`"stage":"clean"`, `"stage":"clean","pipeline":""`},
		"a null member":            {`"stage":"clean"`, `"stage":"clean","pipeline":null`},
		"an unknown member":        {`"stage":"clean"`, `"stage":"clean","colour":"red"`},
		"another attempt":          {`"attempt":2,"c`, `"attempt":3,"c`},
		"no attempt":               {`"attempt":2,"c`, `"c`},
		"unpadded sequence":        {`"00000000000000000004"`, `"4"`},
		"sequence zero":            {`"00000000000000000004"`, `"00000000000000000000"`},
		"time in another zone":     {`05.000000006Z"`, `05.000000006+01:00"`},
		"time far away":            {`"2026-`, `"9026-`},
		"id in capitals":           {`"id":"0190`, `"id":"019O`},
		"another run":              {`"runid":"01900000`, `"runid":"01900001`},
		"an unknown extension":     {`"datacontenttype"`, `"colour":"red","datacontenttype"`},
		"a source of others":       {`/pipelines/`, `/mycontext/`},
		"a short hash":             {`"prevhash":"sha256:`, `"prevhash":"sha256:0`},
		"an exact form of nothing": {`"encoded":"`, `"encoded":"AAAA`},
		"text unlike its encoding": {"\ufffd.csv", `x.csv`},
		"specversion 0.3":          {`"1.0"`, `"0.3"`},
		"another schema":           {`"urn:apollo:event:stage.failed:v1"`, `"urn:apollo:event:stage.failed:v2"`},
		"not JSON":                 {`"data":{`, `"data":`},
		"no data":                  {`"data":{`, `"other":{`},
	} {
		broken := strings.Replace(string(rendered), change[0], change[1], 1)
		if broken == string(rendered) {
			t.Errorf("%s: the test changes nothing in %s", name, rendered)
		}
		if _, _, err := ParseCloudEvent([]byte(broken)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestParseCloudEventOfAnOlderBuild proves that a build reads what an older one passed on without understanding it.
func TestParseCloudEventOfAnOlderBuild(t *testing.T) {
	t.Parallel()
	e, o := sampleEvent()
	whole, _ := e.CloudEvent(o)
	// The older build knew no Reason: it rendered the field in the encoded member alone.
	encoded, _ := json.Marshal((&Data{Reason: e.Data.Reason}).AppendEncoded(nil))
	old := strings.Replace(string(whole), `"reason":"row 3: <price> is no number",`, "", 1)
	old = strings.TrimSuffix(old, "}}") + `,"encoded":` + string(encoded) + "}}"
	back, _, err := ParseCloudEvent([]byte(old))
	if err != nil || !cmp.Equal(back, e) {
		t.Fatalf("%v\n%s", err, cmp.Diff(e, back))
	}
}

func TestCloudEventRefusesWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Event, *Origin){
		"no id":        func(e *Event, _ *Origin) { e.ID = ID{} },
		"no stream":    func(e *Event, _ *Origin) { e.Stream = ID{} },
		"not sealed":   func(e *Event, _ *Origin) { e.Sequence = 0 },
		"unknown type": func(e *Event, _ *Origin) { e.Type = 255 },
		"broken trace": func(_ *Event, o *Origin) { o.Trace = "\xff" },
	} {
		e, o := sampleEvent()
		spoil(&e, &o)
		if b, err := e.AppendCloudEvent([]byte("kept"), o); err == nil || string(b) != "kept" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// TestCloudEventAgainstTheSDK lets the CloudEvents SDK read what we render.
func TestCloudEventAgainstTheSDK(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := genEvent().Draw(t, "event")
		e.Data.Attempt = rapid.IntRange(0, 9).Draw(t, "attempt")
		_, o := sampleEvent()
		rendered, err := e.CloudEvent(o)
		if err != nil {
			t.Fatal(err)
		}
		var other cloudevent.Event
		if err := json.Unmarshal(rendered, &other); err != nil {
			t.Fatalf("%v\n%s", err, rendered)
		}
		if err := other.Validate(); err != nil {
			t.Fatalf("%v\n%s", err, rendered)
		}
		switch {
		case other.ID() != e.ID.String(), other.Type() != e.Type.String(), other.Source() != "/pipelines/orders",
			other.Subject() != e.Subject(), !other.Time().Equal(e.When()), other.DataSchema() != e.Type.Schema(),
			other.Extensions()["correlationid"] != o.Correlation.String():
			t.Fatalf("the SDK reads another event: %s", other)
		}
		var d Data
		if err := parseData(other.Data(), &d); err != nil || !cmp.Equal(d, e.Data) {
			t.Fatalf("the SDK reads other data: %v", err)
		}
	})
}

func BenchmarkCloudEvent(b *testing.B) {
	e, o := sampleEvent()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = e.AppendCloudEvent(buf[:0], o)
	}
}

func BenchmarkParseCloudEvent(b *testing.B) {
	e, o := sampleEvent()
	rendered, _ := e.CloudEvent(o)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ParseCloudEvent(rendered); err != nil {
			b.Fatal(err)
		}
	}
}
