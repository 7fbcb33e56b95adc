package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Origin is what the CloudEvents form of an event needs beside the event: what the first event of its stream said.
type Origin struct {
	Pipeline    string // of the run or delivery
	Correlation ID     // the delivery that everything began with; zero is none
	Trace       string // W3C traceparent; empty is none
}

const (
	sourcePrefix = "/pipelines/"
	timeLayout   = "2006-01-02T15:04:05.000000000Z"
)

// CloudEvent gives the event as CloudEvents 1.0 JSON in structured mode, on one line. It is the form that leaves
// Apollo: files, HTTP, Watermill payloads. ParseCloudEvent reads it back without loss.
func (e *Event) CloudEvent(o Origin) ([]byte, error) {
	return e.AppendCloudEvent(make([]byte, 0, 1024), o)
}

// AppendCloudEvent appends what CloudEvent gives. An event that was not sealed (no id, no stream, no sequence) or whose
// type is not in the list is an error, and b is given back as it was.
func (e *Event) AppendCloudEvent(b []byte, o Origin) ([]byte, error) {
	switch {
	case e.ID.IsZero() || e.Stream.IsZero() || e.Sequence == 0:
		return b, errors.New("render event: it has no id, stream or sequence")
	case !e.Type.Known():
		return b, fmt.Errorf("render event %s: type %d is not in the list", e.ID, e.Type)
	case !utf8.ValidString(o.Trace):
		return b, fmt.Errorf("render event %s: traceparent is not UTF-8", e.ID)
	}
	data, err := renderData(&e.Data)
	if err != nil {
		return b, fmt.Errorf("render event %s: %w", e.ID, err)
	}
	b = append(b, `{"specversion":"1.0","id":"`...)
	b = append(b, e.ID.String()...)
	b = append(append(b, `","source":"`...), sourcePrefix+url.PathEscape(o.Pipeline)...)
	b = append(append(b, `","type":"`...), e.Type.String()...)
	b = append(append(b, `","subject":"`...), e.Subject()...)
	b = append(append(b, `","time":"`...), e.When().Format(timeLayout)...)
	b = append(append(b, `","dataschema":"`...), e.Type.Schema()...)
	b = append(b, `","datacontenttype":"application/json`...)
	b = e.appendExtensions(append(b, '"'), o)
	b = append(append(b, `,"data":`...), data...)
	return append(b, '}'), nil
}

func (e *Event) appendExtensions(b []byte, o Origin) []byte {
	if entity := e.Type.Entity(); entity == "run" || entity == "stage" {
		b = append(append(append(b, `,"runid":"`...), e.Stream.String()...), '"')
	}
	b = fmt.Appendf(b, `,"sequence":"%020d"`, e.Sequence)
	if e.Data.Attempt > 0 && e.Data.Attempt <= math.MaxInt32 {
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(e.Data.Attempt), 10)
	}
	if !e.Cause.IsZero() {
		b = append(append(append(b, `,"causationid":"`...), e.Cause.String()...), '"')
	}
	if !o.Correlation.IsZero() {
		b = append(append(append(b, `,"correlationid":"`...), o.Correlation.String()...), '"')
	}
	if o.Trace != "" {
		quoted, _ := json.Marshal(o.Trace) //nolint:errchkjson // a string always has a JSON form
		b = append(append(b, `,"traceparent":`...), quoted...)
	}
	if !e.Prev.IsZero() {
		b = append(append(append(b, `,"prevhash":"`...), e.Prev.String()...), '"')
	}
	return b
}

// Subject gives what the event is about within its source, as "runs/<id>/stages/<stage>", "runs/<id>" or
// "deliveries/<id>".
func (e *Event) Subject() string {
	switch entity := e.Type.Entity(); entity {
	case "stage":
		return "runs/" + e.Stream.String() + "/stages/" + url.PathEscape(e.Data.Stage)
	case "delivery":
		return "deliveries/" + e.Stream.String()
	default:
		return entity + "s/" + e.Stream.String()
	}
}

// Schema gives the URI of the schema that the data of the type's events meets.
func (t Type) Schema() string { return "urn:apollo:event:" + t.Short() + ":v1" }

// ParseCloudEvent reads what CloudEvent wrote. The order of the attributes and white space are free; all else is
// strict: an attribute that is missing, unknown or disagrees with the event is an error, and so are data that the event
// would not be rendered as. The event's encoded data and thus its hash are those of the event that was rendered.
func ParseCloudEvent(b []byte) (Event, Origin, error) {
	env, err := ParseEnvelope(b)
	if err != nil {
		return Event{}, Origin{}, err
	}
	e, o, err := env.event()
	if err != nil {
		return Event{}, Origin{}, fmt.Errorf("parse event %s: %w", env.ID, err)
	}
	rendered, err := e.CloudEvent(o)
	if err != nil {
		return Event{}, Origin{}, err
	}
	if bytes.Equal(rendered, bytes.TrimSpace(b)) {
		return e, o, nil
	}
	want, err := ParseEnvelope(rendered)
	if err != nil {
		return Event{}, Origin{}, err
	}
	if name, ok := env.sameAttributes(&want); !ok {
		return Event{}, Origin{}, fmt.Errorf("parse event %s: attribute %s is not what the event says", env.ID, name)
	}
	return e, o, nil
}

// event reads the event out of its envelope; whether the attributes agree is for the caller to check.
func (env *Envelope) event() (e Event, o Origin, err error) {
	var subject []string
	subject = append(subject, strings.SplitN(env.Subject, "/", 3)...)
	pipeline, ok := strings.CutPrefix(env.Source, sourcePrefix)
	if !ok || len(subject) < 2 || env.Base64 {
		return e, o, errors.New("not an event of Apollo")
	}
	o.Trace = env.Extensions["traceparent"]
	o.Pipeline, err = url.PathUnescape(pipeline)
	parse := func(problem error) {
		if err == nil {
			err = problem
		}
	}
	parse(e.Type.UnmarshalText([]byte(env.Type)))
	parse(e.ID.UnmarshalText([]byte(env.ID)))
	parse(e.Stream.UnmarshalText([]byte(subject[1])))
	parse(e.Cause.UnmarshalText([]byte(env.Extensions["causationid"])))
	parse(o.Correlation.UnmarshalText([]byte(env.Extensions["correlationid"])))
	parse(e.Prev.UnmarshalText([]byte(env.Extensions["prevhash"])))
	sequence, problem := strconv.ParseUint(env.Extensions["sequence"], 10, 64)
	parse(problem)
	parse(parseData(env.Data, &e.Data))
	e.Sequence, e.Time = sequence, env.Time.UnixNano()
	return e, o, err
}

// sameAttributes compares everything but the data and names the first attribute that differs.
func (env *Envelope) sameAttributes(want *Envelope) (name string, same bool) {
	for _, a := range [...]struct{ name, got, want string }{
		{"id", env.ID, want.ID}, {"source", env.Source, want.Source}, {"type", env.Type, want.Type},
		{"subject", env.Subject, want.Subject}, {"dataschema", env.DataSchema, want.DataSchema},
		{"time", env.Time.Format(time.RFC3339Nano), want.Time.Format(time.RFC3339Nano)},
		{"datacontenttype", env.DataContentType, want.DataContentType},
	} {
		if a.got != a.want {
			return a.name, false
		}
	}
	for name, value := range env.Extensions {
		if want.Extensions[name] != value {
			return name, false
		}
	}
	for name := range want.Extensions {
		if _, ok := env.Extensions[name]; !ok {
			return name, false
		}
	}
	return "", true
}
